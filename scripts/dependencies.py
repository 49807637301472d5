#!/usr/bin/env python3
"""Check every dependency against deny.toml: licences, sources, banned crates and crates in two versions.

Needs Cargo alone. Advisories are left to `cargo deny check advisories`, which needs their database from the network.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")


def is_allowed(expression, allowed):
    """Whether a licence expression can be met: one side of every OR, both sides of every AND."""
    text = expression.replace("/", " OR ")
    tokens = re.findall(r"\(|\)|[^\s()]+", text)
    position = 0

    def operands(word, operand, combine):
        nonlocal position
        met = [operand()]
        while position < len(tokens) and tokens[position] == word:
            position += 1
            met.append(operand())
        return combine(met)

    def choice():
        return operands("OR", both, any)

    def both():
        return operands("AND", single, all)

    def single():
        nonlocal position
        token = tokens[position]
        position += 1
        if token == "(":
            met = choice()
            position += 1
            return met
        if position < len(tokens) and tokens[position] == "WITH":
            token = f"{token} WITH {tokens[position + 1]}"
            position += 2
        return token in allowed

    return choice()


def faults(packages, rules):
    allowed = set(rules["licenses"]["allow"])
    skipped = set(rules["bans"]["skip"])
    versions = collections.defaultdict(set)
    for package in packages:
        name, version, source = package["name"], package["version"], package["source"]
        if source is None:
            continue
        versions[name].add(version)
        if not package["license"] or not is_allowed(package["license"], allowed):
            yield f"{name} {version}: the licence {package['license']} is not allowed"
        if not source.startswith("registry+"):
            yield f"{name} {version}: it comes from {source}"
        if name in rules["bans"]["deny"]:
            yield f"{name} {version}: it is banned"
    for name, found in versions.items():
        kept = [v for v in found if not any(f"{name}@{v}".startswith(f"{skip}.") for skip in skipped)]
        if len(found) > 1 and len(kept) > 1:
            yield f"{name}: versions {', '.join(sorted(found))} at once"
    for skip in skipped:
        name, version = skip.split("@")
        if not any(found.startswith(f"{version}.") for found in versions.get(name, ())):
            yield f"deny.toml skips {skip}, which is not used any more"


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))
    command = [CARGO, "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    packages = json.loads(output)["packages"]
    found = sorted(faults(packages, rules))
    for fault in found:
        print(fault, file=sys.stderr)
    print(f"{len(packages)} packages: {len(found)} faults")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
