#!/usr/bin/env python3
"""Compares `orrery query plan` with the service's own planner, query by query, where somebody has it.

  ORACLE=DIRECTORY fuzz/compare_planner.py --bin target/debug/orrery --seeds 0:1000
  ORACLE=DIRECTORY fuzz/compare_planner.py --bin target/debug/orrery --file QUERIES

`make compare-planner ORACLE=DIRECTORY` does the first. DIRECTORY holds a Python module `plan` whose function
`plan(text, parameters, paths, kind)` gives a status (0 for a plan) and a JSON text: the plan or the errors. It wraps the
library that the .NET client carries, which is not part of this repository. The queries are made from seeds, for each shape
of `planner_queries.py`, or read from a file: one JSON object a line with "query", "parameters", "pk", "pkKind", as in
`crates/orrery-query/tests/data/planner-*.jsonl`. What is compared: accepted or refused, the first error's code, message and
place, every field of the plan, and whether all ranges are asked, none, or how many. The library ends its process on
some texts; it runs in processes of its own, and what has no answer is left out.
"""
import argparse, json, os, subprocess, sys

FIELDS = ("distinctType", "orderBy", "orderByExpressions", "groupByExpressions", "groupByAliases", "aggregates",
          "groupByAliasToAggregateType", "rewrittenQuery", "top", "offset", "limit", "hasSelectValue",
          "hasNonStreamingOrderBy", "dCountInfo")

def bare(value):
    if isinstance(value, dict): return {k: bare(v) for k, v in value.items() if bare(v) not in (None, [], {}, 0)}
    if isinstance(value, list): return [bare(v) for v in value]
    return None if value in ("", False) else 1 if value is True else value

def shape(ranges):
    if len(ranges) == 1 and ranges[0]["min"] in ([], ""):
        return "all" if ranges[0]["max"] in ("Infinity", "FF") else "none"
    return len(ranges)

def difference(ours, status, text):
    """None, or what differs."""
    if status and not text: return None  # the library gave up
    answer = json.loads(text)
    refused = ours.get("errors")
    if status:
        error = (answer.get("errors") or [{"message": m} for m in answer.get("Errors", [])])[0]
        if not refused: return f"accepted, but {error.get('code')}: {error['message']}"
        own = refused[0]
        place = error.get("location")
        same = (own.get("code"), own.get("message")) == (error.get("code"), error["message"])
        return None if same and (not place or own.get("location") == place) else f"{own} instead of {error}"
    if refused: return f"refused, but accepted: {refused[0].get('message')}"
    mine, theirs = ours.get("queryInfo") or {}, answer.get("queryInfo") or {}
    for name in FIELDS:
        if bare(mine.get(name)) != bare(theirs.get(name)): return f"{name}: {mine.get(name)!r} instead of {theirs.get(name)!r}"
    if bare(ours.get("hybridSearchQueryInfo")) != bare(answer.get("hybridSearchQueryInfo")): return "hybridSearchQueryInfo"
    a, b = shape(ours["queryRanges"]), shape(answer["queryRanges"])
    return None if a == b else f"ranges {a} instead of {b}"

def answers(cases):
    """What the service's planner says to each, or None."""
    import plan
    found = []
    while len(found) < len(cases):
        reader, writer = os.pipe(); child = os.fork()
        if child == 0:
            os.close(reader); os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(writer, "w") as out:
                for case in cases[len(found):]:
                    paths = [tuple(p.strip("/").split("/")) for p in case.get("pk", ["/pk"])]
                    kind = {"Hash": 0, "Range": 1, "MultiHash": 2}[case.get("pkKind", "Hash")]
                    print(json.dumps(plan.plan(case["query"], case.get("parameters"), paths, kind)), file=out, flush=True)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as lines: found += [json.loads(line) for line in lines]
        os.waitpid(child, 0)
        if len(found) < len(cases): found.append(None)
    return found

def compare(binary, name, cases):
    asked = [{k: c[k] for k in ("query", "parameters", "pk", "pkKind") if k in c} for c in cases]
    done = subprocess.run([binary, "query", "plan"], input="".join(json.dumps(c) + "\n" for c in asked), capture_output=True, text=True)
    total = wrong = 0
    for case, line, answer in zip(asked, done.stdout.splitlines(), answers(asked)):
        if answer is None: continue
        total += 1
        found = difference(json.loads(line), *answer)
        if found: wrong += 1; print(case["query"], "\n   ", found[:300])
    print(f"{name}: {total - wrong} of {total} agree ({100 * (total - wrong) / max(total, 1):.2f} %)")
    return wrong

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True); parser.add_argument("--file"); parser.add_argument("--seeds", default="0:1000")
    options = parser.parse_args()
    if "ORACLE" not in os.environ: sys.exit("set ORACLE to the directory of the planner's Python module")
    sys.path.insert(0, os.environ["ORACLE"])
    if options.file: return compare(options.bin, options.file, [json.loads(line) for line in open(options.file) if line.strip()]) != 0
    import planner_queries
    first, last = map(int, options.seeds.split(":"))
    return sum(compare(options.bin, shape, [planner_queries.case(shape, seed) for seed in range(first, last)]) for shape in planner_queries.SHAPES) != 0

if __name__ == "__main__": sys.exit(main())
