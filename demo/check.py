# SPDX-License-Identifier: Apache-2.0
"""Is what the API answers about the demo what the demo burned? Used by run.py --check.

The demo's shares are known by construction, its CPU time from its own clock, its stacks from its
source. Each comparison prints one line; verify() returns 0 if all hold, else 1.
"""
import math
import os
import signal
import time

SHARES = {"blur_image": 0.60, "compress_image": 0.30, "hash_tags": 0.10}
POINTS = 0.03       # a share may be off by this,
ERRORS = 5          # or by so many standard errors of its own sampling, whichever is more
COMPLETE = 0.99     # of the demo's weight under complete stacks, once
WARM_S = 2          # after its start the tables of its libraries are built, which takes
COMPLETE_COLD = 0.9 # longer on a busy machine; of all its weight
COVERED = 0.99      # of the asked time
FOLDERS = 64        # frames of search_folder above hash_tags
CALLERS = {
    "blur_image": ["serve_requests", "handle_request", "render_page", "make_thumbnail",
                   "run_slice", "blur_image"],
    "compress_image": ["serve_requests", "handle_request", "render_page", "make_thumbnail",
                       "run_slice", "compress_image"],
    "hash_tags": ["serve_requests", "handle_request"] + ["search_folder"] * FOLDERS +
                 ["run_slice", "hash_tags"],
}


class Tree:
    """A flame graph of the API: preorder columns, with the path of names of each node."""

    def __init__(self, answer):
        strings, node = answer["strings"], answer["node"]
        self.names = [strings[i] for i in answer["func"]["name"]]
        self.kinds = answer["func"]["kind"]
        self.depth, self.func = node["depth"], node["func"]
        self.self = [int(v) for v in node["self"]]
        self.total = [int(v) for v in node["total"]]
        self.samples = node["samples"]
        self.hidden = node["hidden"]

    def __len__(self):
        return len(self.depth)

    def walk(self):
        """(index, names from below the root to the node), in preorder."""
        path = []
        for i, depth in enumerate(self.depth):
            del path[depth:]
            name = self.names[self.func[i]] if self.func[i] >= 0 else "[hidden]"
            path.append(name)
            yield i, path[1:]

    def unbalanced(self):
        """Nodes whose total is not self plus the totals of their children, in integers."""
        rest = [t - s for t, s in zip(self.total, self.self)]
        parents = []
        for i, depth in enumerate(self.depth):
            del parents[depth:]
            if parents:
                rest[parents[-1]] -= self.total[i]
            parents.append(i)
        return [i for i, r in enumerate(rest) if r]


class Verdict:
    def __init__(self):
        self.failed = 0

    def that(self, good, text):
        print(f"          {'ok  ' if good else 'FAIL'}  {text}", flush=True)
        self.failed += not good


def outermost(tree, name):
    """Weight of the samples that contain the function, each once."""
    return sum(tree.total[i] for i, path in tree.walk()
               if path and path[-1] == name and name not in path[:-1])


def ask(run, begun, ended):
    """The demo's tree. A sample carries the second that it was taken in: from the middle of
    one, that second's samples would be missing."""
    return run.api.get("/api/v1/flamegraph", q=run.selector, max_nodes=0, width=0,
                       **{"from": f"{begun // 10**9}s", "to": f"{ended}ns"})


def settled(run, begun):
    """The demo has ended: its tree, once the agent has delivered what it saw until then."""
    ended = time.time_ns()
    wanted = ended - 50_000_000  # the last window may close a little before "now"
    last = None

    def ready():
        nonlocal last
        types = run.api.get("/api/v1/types", q="cpu", **{"from": f"{begun}ns", "to": "now"})
        seen = [int(t["last_ns"]) for t in types["types"] if t.get("last_ns")]
        if not seen or max(seen) < wanted:
            return None
        last = ask(run, begun, ended)
        return last

    return run.wait("the agent's last window", 60, ready)


def check_tree(verdict, answer, tree):
    total = int(answer["total"])
    verdict.that(len(tree) > 0 and not tree.unbalanced(),
                 f"every node of {len(tree)} adds up: total = self + children, in integers")
    verdict.that(sum(tree.self) == total and tree.total[0] == total,
                 f"all selves add up to the total, {total} ns")
    verdict.that(not any(tree.hidden), "max_nodes=0 hides nothing")


def check_shares(verdict, tree, total, samples):
    for name, share in SHARES.items():
        got = outermost(tree, name) / total
        error = math.sqrt(share * (1 - share) / samples)
        limit = max(POINTS, ERRORS * error)
        verdict.that(abs(got - share) <= limit,
                     f"{name}: {100 * got:.2f} % of {100 * share:.0f} % "
                     f"(within {100 * limit:.1f} points)")


def check_complete(verdict, tree, samples, least, when):
    """Of few samples two may be broken."""
    least -= 2 / samples
    broken = {}
    for i, path in tree.walk():
        if len(path) == 1 and path[0].startswith(("[truncated", "[no stack")):
            broken[path[0]] = tree.total[i]
    complete = 1 - sum(broken.values()) / tree.total[0]
    verdict.that(complete >= least,
                 f"{100 * complete:.2f} % of the weight {when} has a complete stack"
                 + (f" ({', '.join(sorted(broken))})" if broken else ""))


def check_callers(verdict, tree):
    for name, want in CALLERS.items():
        right = wrong = 0
        for i, path in tree.walk():
            if not path or path[-1] != name or name in path[:-1] or path[0].startswith("["):
                continue
            if path[-len(want):] == want and path.count("search_folder") == want.count("search_folder"):
                right += tree.total[i]
            else:
                wrong += tree.total[i]
        verdict.that(right > 0 and wrong == 0,
                     f"{name} stands under the {len(want) - 1} callers that the source says"
                     + (f"; {wrong} ns do not" if wrong else ""))


def check_evidence(verdict, answer):
    coverage, quality = answer["coverage"], answer["quality"]
    covered, asked = int(coverage["covered_ns"]), int(coverage["asked_ns"])
    verdict.that(covered >= COVERED * asked,
                 f"covered {covered / 1e9:.2f} s of {asked / 1e9:.2f} s")
    expected, received = quality["expected"], quality["received"]
    lost = quality["lost"]
    known = None not in (expected, received) and all(l["n"] is not None for l in lost)
    missing = sum(int(l["n"]) for l in lost) if known else 0
    verdict.that(known and int(expected) == int(received) + missing,
                 f"ticks expected {expected} = received {received} + lost {missing}"
                 + "".join(f" {l['why']} {l['n']}" for l in lost))


def check_clock(verdict, total, samples, wall_ns, lost_ns, burned):
    """The demo's own clock against what was profiled. Which ticks hit a program that shares its
    CPUs is chance: the count is binomial."""
    share = min(1, burned / (wall_ns * os.cpu_count()))
    limit = max(0.02, ERRORS * math.sqrt((1 - share) / samples))
    verdict.that(burned - total - lost_ns <= limit * burned and total - burned <= limit * burned,
                 f"profiled {total / 1e9:.3f} s beside {burned / 1e9:.3f} s of the demo's own clock "
                 f"({100 * (total - burned) / burned:+.2f} %, within {100 * limit:.1f} %; "
                 f"lost {lost_ns / 1e9:.3f} s)")


def check_identity(verdict, status, seconds):
    """What the agent's windows add up to, in integers, over all CPUs since its start."""
    f = {name: int(v) for name, v in status["figures"].items()}
    # of a second each; on a busy machine longer
    verdict.that(f["agent_windows"] >= seconds / 3 and f["agent_identity_violations"] == 0,
                 f"busy + idle + jitter + missed = the clock's advance on every CPU in each of "
                 f"{f['agent_windows']} windows ({f['agent_identity_violations']} violations)")
    kept, busy = f["agent_weight"] + f["agent_ring_full"] + f["agent_filtered"], f["agent_busy"]
    verdict.that(kept == busy, f"weight sent + refused by the ring + filtered = busy: {kept} = {busy} ns")
    dropped = sum(v for name, v in f.items() if name.startswith("agent_dropped_"))
    produced = f["agent_batches_produced"]
    verdict.that(produced == f["agent_batches_sent"] + dropped + f["agent_batches_spooled"],
                 f"batches produced {produced} = sent {f['agent_batches_sent']} + dropped {dropped} "
                 f"+ waiting {f['agent_batches_spooled']}")


def verify(run, say):
    verdict = Verdict()
    begun = run.begun_ns
    demo = run.programs[-1]
    for left in range(run.options.seconds, 0, -1):
        if left % 5 == 0:
            say(f"sampling, {left} s left")
        run.check_programs()
        time.sleep(1)
    demo.process.send_signal(signal.SIGTERM)
    ended = time.time_ns()
    out = demo.process.communicate(timeout=60)[0].decode()
    run.programs.remove(demo)
    truth = {k: int(v) for k, v in (pair.split("=") for pair in out.split("\n")[1].split())}
    answer = settled(run, begun)
    if not answer["total"] or not int(answer["total"]):
        verdict.that(False, f"the API has samples of the demo: {answer.get('empty')}")
        return 1
    tree = Tree(answer)
    total, samples = int(answer["total"]), int(answer["samples"])
    say(f"the demo in the API: {samples} samples, {total / 1e9:.3f} s")
    burned = truth.pop("cpu_ns")
    print("          by its own clock: " + ", ".join(
        f"{name} {100 * ns / burned:.2f} %" for name, ns in truth.items()), flush=True)
    check_tree(verdict, answer, tree)
    check_shares(verdict, tree, total, samples)
    check_complete(verdict, tree, samples, COMPLETE_COLD, "from its start on")
    warm = ask(run, begun + WARM_S * 10**9, ended)
    check_complete(verdict, Tree(warm), int(warm["samples"]), COMPLETE, f"after {WARM_S} s")
    check_callers(verdict, tree)
    check_evidence(verdict, answer)
    check_identity(verdict, run.agent_status(), run.options.seconds)
    lost_ns = sum(int(l["weight"] or 0) for l in answer["quality"]["lost"]
                  if l["why"] != "ticks_missed_idle")
    check_clock(verdict, total, samples, ended - begun, lost_ns, burned)
    return 1 if verdict.failed else 0
