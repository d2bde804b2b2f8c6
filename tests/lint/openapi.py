#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json is what stratad does: the same routes and parameters in both directions, and
every golden answer of tests/golden/api fits the schema of its route.

usage: openapi.py ROOT STRATAD
"""
import json
import os
import re
import subprocess
import sys

# golden answers by the word that they begin with
SCHEMAS = {"tree": "Tree", "top": "Top", "sandwich": "Sandwich", "diff": "Diff", "diff_top": "Diff",
           "series": "Series", "steps": "Steps", "events": "Events", "label_sets": "LabelSets",
           "coverage": "CoverageRuns", "metrics": "Metrics", "metric_series": "MetricSeries",
           "types": "Types", "labels": "LabelNames", "values": "Values", "targets": "Targets",
           None: "Status"}
WORDS = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
         "boolean": bool, "null": type(None)}


class Misfit(Exception):
    pass


def is_type(v, word):
    if isinstance(v, bool):
        return word == "boolean"
    return isinstance(v, WORDS[word])


def each_ref(schema, root):
    while "$ref" in schema:
        at = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            at = at[key]
        schema = at
    return schema


def named(schema, root):
    """The keys that an object of it may have; None: any."""
    schema = each_ref(schema, root)
    if "additionalProperties" in schema:
        return None
    keys = set(schema.get("properties", {}))
    for sub in schema.get("allOf", []) + schema.get("anyOf", []):
        if "object" in str(each_ref(sub, root).get("type", "object")):
            more = named(sub, root)
            if more is None:
                return None
            keys |= more
    return keys


def fits(v, schema, root, at, whole=True):
    """The part of JSON Schema that the page uses; unknown words are a mistake in it. An answer has
    no key that the page does not name. whole: schema is all that is said of v."""
    schema = each_ref(schema, root)
    keys = named(schema, root) if whole and isinstance(v, dict) else None
    for key in sorted(v.keys() - keys) if keys else []:
        raise Misfit(f"{at}: {key} is not in the page")
    for word, x in schema.items():
        if word == "type":
            if not any(is_type(v, w) for w in ([x] if isinstance(x, str) else x)):
                raise Misfit(f"{at}: {v!r} is no {x}")
        elif word == "enum":
            if v not in x:
                raise Misfit(f"{at}: {v!r} is none of {x}")
        elif word == "const":
            if v != x:
                raise Misfit(f"{at}: {v!r} is not {x!r}")
        elif word == "pattern":
            if isinstance(v, str) and not re.search(x, v):
                raise Misfit(f"{at}: {v!r} does not match {x}")
        elif word == "required":
            for key in x:
                if isinstance(v, dict) and key not in v:
                    raise Misfit(f"{at}: {key} is missing")
        elif word == "properties":
            for key, sub in x.items():
                if isinstance(v, dict) and key in v:
                    fits(v[key], sub, root, f"{at}.{key}")
        elif word == "additionalProperties":
            for key, value in v.items():
                if key not in schema.get("properties", {}):
                    fits(value, x, root, f"{at}.{key}")
        elif word == "items":
            for i, value in enumerate(v if isinstance(v, list) else []):
                fits(value, x, root, f"{at}[{i}]")
        elif word in ("minItems", "maxItems"):
            if (len(v) < x) if word == "minItems" else (len(v) > x):
                raise Misfit(f"{at}: {len(v)} items, {word} {x}")
        elif word == "allOf":
            for sub in x:
                fits(v, sub, root, at, False)
        elif word == "anyOf":
            wrong = []
            for sub in x:
                try:
                    fits(v, sub, root, at, False)
                    break
                except Misfit as e:
                    wrong.append(str(e))
            else:
                raise Misfit("; ".join(wrong))
        elif word != "description":
            raise Misfit(f"{at}: the checker does not know the word {word}")


def routes_of(page):
    """{(method, path): parameters} of the query string."""
    found = {}
    for path, item in page["paths"].items():
        for method, op in item.items():
            names = set()
            for p in op.get("parameters", []):
                p = each_ref(p, page)
                if p["in"] == "query":
                    names.add(p["name"])
            found[method.upper(), path] = names
            if op.get("x-form"):
                found["POST", path] = names
    return found


def routes_served(stratad):
    out = subprocess.run([stratad, "--dump-routes"], check=True, capture_output=True, text=True)
    found = {}
    for line in out.stdout.splitlines():
        methods, path, *names = line.replace(", ", ",").split()
        if path.startswith("/api/v1/"):
            for method in methods.split(","):
                if method != "HEAD":
                    found[method, path.removeprefix("/api/v1")] = set(names)
    return found


def main():
    root, stratad = sys.argv[1:]
    problems, n = [], 0
    with open(os.path.join(root, "docs/openapi.json"), encoding="utf-8") as f:
        page = json.load(f)
    said, served = routes_of(page), routes_served(stratad)
    for route in sorted(said.keys() | served.keys()):
        if route not in said:
            problems.append(f"{' '.join(route)} is served and not in docs/openapi.json")
        elif route not in served:
            problems.append(f"{' '.join(route)} is in docs/openapi.json and not served")
        elif said[route] != served[route]:
            problems.append(f"{' '.join(route)}: parameters differ: "
                            f"{' '.join(sorted(said[route] ^ served[route]))}")
    folder = os.path.join(root, "tests/golden/api")
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json") or name.startswith("export."):
            continue  # an export has the form of another program
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            answer = json.load(f)
        schema = SCHEMAS.get(answer.get("kind"))
        try:
            if not schema:
                raise Misfit(f"no schema for kind {answer.get('kind')}")
            fits(answer, page["components"]["schemas"][schema], page, schema)
            n += 1
        except Misfit as e:
            problems.append(f"tests/golden/api/{name}: {e}")
    for p in problems:
        print(p)
    print(f"openapi: {len(said)} routes, {n} answers, {len(problems)} problems")
    return 1 if problems or not n else 0


if __name__ == "__main__":
    sys.exit(main())
