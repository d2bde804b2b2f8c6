# SPDX-License-Identifier: Apache-2.0
"""The gates of ./dev bench store: which figure is divided by which, and what must come out.

A gate holds for the workloads and the size that it was set for; at another size its ratio is shown
and the result is "skip". README.md says what each line means.
"""

FULL = {"r1": 10_000_000, "r1t": 10_000_000, "z": 10_000_000, "a": 10_000_000, "r2": 100_000_000}

# name, workloads, what is divided, by what, "<=" or ">=" a limit per workload
GATES = [
    ("T1 bytes per sample", "bytes", None, "<=", {"r1": 5.4, "r2": 3.55, "z": 4.35, "r1t": 5.95}),
    ("T2 bytes / ClickHouse with roll-up", "bytes", "clickhouse_bytes_rollup", "<=",
     {"r1": 0.90, "r2": 0.93}),
    ("T2 bytes / Parquet with roll-up", "bytes", "parquet_bytes_rollup", "<=",
     {"r1": 0.86, "r2": 0.89}),
    ("T2b bytes / ClickHouse with path arrays", "bytes", "clickhouse_bytes_paths", "<=",
     {"r1": 0.70, "r2": 0.82}),
    ("T2b bytes / DuckDB with roll-up", "bytes", "duckdb_bytes_rollup", "<=", {"r1": 0.65}),
    ("T2b bytes / SQLite rows", "bytes", "sqlite_bytes", "<=", {"r1": 0.20}),
    ("T3 one service: DuckDB SQL / ours", "duckdb_b_sql", "one", ">=", {"r1": 18}),
    ("T3 one service: engine and client / ours", "client_b", "one", ">=", {"r1": 4.3}),
    ("T3 one service: ours / lean", "one", "lean_one", "<=", {"r1": 2}),
    ("T3 one service: ours / lean in columns", "one", "columns_one", None, {"r1": None}),
    ("T4 one service: ClickHouse SQL / ours", "clickhouse_b_sql", "one", ">=", {"r1": 28}),
    ("T4 one service: SQLite group-by / ours", "sqlite_a1", "one", ">=", {"r1": 450}),
    ("T5 all services: ClickHouse SQL / ours", "clickhouse_c_sql", "all", ">=",
     {"r1": 70, "r2": 70}),
    ("T5 all services: DuckDB SQL / ours", "duckdb_c_sql", "all", ">=", {"r1": 45, "r2": 45}),
    ("T5 all services: engine and client / ours", "client_c", "all", ">=", {"r1": 4.5, "r2": 4.5}),
    ("T5 all services: ours / lean", "all", "lean", "<=", {"r1": 2, "r2": 2.5}),
    ("T5 all services: ours / lean in columns", "all", "columns", None, {"r1": None, "r2": None}),
    ("T6 columns: DuckDB / ours", "duckdb_a2_raw", "all_raw", ">=", {"r1": 12, "r2": 10}),
    ("T6 columns: ClickHouse / ours", "clickhouse_a2_raw", "all_raw", ">=", {"r1": 14, "r2": 10}),
    ("T6 columns: ours / floor", "all_raw", "floor", None, {"r1": None, "r2": None}),
    ("T7 summed hour: ours / floor", "all_sum", "floor", "<=", {"r2": 0.6}),
    ("T8 ten minutes: DuckDB / ours", "duckdb_d2", "cut", ">=", {"r1": 4, "r1t": 4}),
    ("T8 ten minutes: ClickHouse / ours", "clickhouse_d2", "cut", ">=", {"r1": 9, "r1t": 9}),
    ("T8 ten minutes per row: ours / floor", "cut_per_row", "floor_per_row", None,
     {"r1": None, "r1t": None, "r2": None}),
    ("T8b by 15 s: DuckDB / ours", "duckdb_e", "series", ">=", {"r1": 3.2}),
    ("T9 sealed / decode and count", "http_sealed_1000", "http_decode_1000", "<=", {"": 12}),
    ("T9 ClickHouse load and roll-up / sealed", "clickhouse_load", "http_sealed_1000", ">=",
     {"r1": 2}),
    ("T9 SQLite rows and index / sealed", "sqlite_rows_index_1000", "http_sealed_1000", ">=",
     {"": 7}),
    ("T10 journal / file at 4 KiB", "journal_over_file_4", None, ">=", {"": 0.3}),
    ("T10 journal / file at 64 KiB", "journal_over_file_64", None, ">=", {"": 0.5}),
    ("T10 journal / file at 256 KiB", "journal_over_file_256", None, ">=", {"": 0.5}),
    ("T10 written per byte at 4 KiB", "journal_written_4", None, "<=", {"": 3.2}),
    ("T10 written per byte at 64 KiB", "journal_written_64", None, "<=", {"": 1.15}),
    ("T11 answer p99 while sealing / lone commit p50", "answer_sealing_p99", "lone_64k_p50", "<=",
     {"": 50}),
    ("T13 head, B per sample", "head_r1", None, "<=", {"r1": 32}),
    ("T14 query p99 at 1 M samples/s / idle", "query_1000k_p99", "query_idle_p99", "<=",
     {"": 2.5}),
    ("T14 query p99 at 200,000 samples/s / idle", "query_200k_p99", "query_idle_p99", None,
     {"": None}),
]


def judge(value, sign, limit):
    if sign is None:
        return "shown"
    return "pass" if (value <= limit if sign == "<=" else value >= limit) else "fail"


def row(name, workload, ratio, sign, limit, result):
    label = f"{name} ({workload.upper()})" if workload else name
    shown = "" if ratio is None else f"{ratio:.4g}"
    return f"gate {label},{shown},{(sign or '') + ('' if limit is None else f' {limit:g}')},{result}"


def gates(figures, samples, smoke):
    """figures: {(workload, name): value}; workload "" where it does not matter. Lines."""
    for name, over, under, sign, limits in GATES:
        for workload, limit in limits.items():
            if workload and workload not in samples:
                continue
            top = figures.get((workload, over), figures.get(("", over)))
            low = 1 if under is None else figures.get((workload, under), figures.get(("", under)))
            if top is None or not low:
                yield row(name, workload, None, sign, limit, "skip")
                continue
            full = not smoke and (not workload or samples[workload] == FULL[workload])
            yield row(name, workload, top / low, sign, limit,
                      judge(top / low, sign, limit) if full else "skip")
    if ("a", "bytes") in figures and ("r1", "bytes") in figures:
        more = figures["a", "bytes"] - figures["r1", "bytes"]
        full = not smoke and samples.get("a") == FULL["a"] and samples.get("r1") == FULL["r1"]
        yield row("T1 A less R1, B per sample", "", more, "<=", 0.1,
                  judge(more, "<=", 0.1) if full else "skip")
