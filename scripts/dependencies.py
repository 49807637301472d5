#!/usr/bin/env python3
"""Check every dependency against deny.toml: licences, sources, banned crates and crates in two versions.

Needs Cargo alone. Advisories need their database: `--advisories DIRECTORY` takes a checkout of the RustSec advisory database
and also checks every version in the lock files against it, as `cargo deny check advisories` would.
"""

import argparse

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


def order(version):
    """A key that sorts versions by precedence: a pre-release comes before its release."""
    core, _, pre_release = version.split("+")[0].partition("-")
    numbers = [int(number) for number in core.split(".")]
    return (numbers + [0, 0])[:3], not pre_release, pre_release


def satisfies(version, requirement):
    """Whether a version meets every part of a requirement such as `>=1.2.3, <2`."""
    found = order(version)
    for part in requirement.split(","):
        operator, wanted = re.fullmatch(r"\s*(>=|<=|>|<|=|\^|~|)\s*(\S+)\s*", part).groups()
        given = len(wanted.split("-")[0].split("."))
        least = order(wanted)
        # `^` fixes the numbers up to the first one that is not zero, `~` the first two, `=` all that are given.
        zeros = next((at for at, number in enumerate(least[0]) if number), given - 1)
        fixed = {"^": zeros + 1, "": zeros + 1, "~": min(given, 2), "=": given}.get(operator)
        met = {
            ">": found > least,
            "<": found < least,
            "<=": found <= least,
            "=": True,
        }.get(operator, found >= least)
        if not met or (fixed is not None and found[0][:fixed] != least[0][:fixed]):
            return False
    return True


def advisories(database):
    """Versions in any lock file that an advisory applies to."""
    locked = collections.defaultdict(set)
    for lock in sorted(ROOT.glob("*/Cargo.lock")) + [ROOT / "Cargo.lock"]:
        for package in tomllib.loads(lock.read_text(encoding="utf-8"))["package"]:
            locked[package["name"]].add(package["version"])
    for name, versions in locked.items():
        for file in sorted((database / "crates" / name).glob("*.md")):
            front = re.search(r"```toml\n(.*?)```", file.read_text(encoding="utf-8"), re.DOTALL)
            entry = tomllib.loads(front[1])
            sound = entry["versions"].get("patched", []) + entry["versions"].get("unaffected", [])
            for version in versions:
                if "withdrawn" not in entry["advisory"] and not any(satisfies(version, one) for one in sound):
                    yield f"{name} {version}: {entry['advisory']['id']} applies"


def main():
    parser = argparse.ArgumentParser(description="Checks every dependency against deny.toml.")
    parser.add_argument("--advisories", type=pathlib.Path, metavar="DIRECTORY", help="a checkout of the RustSec database")
    arguments = parser.parse_args()
    rules = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))
    command = [CARGO, "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    packages = json.loads(output)["packages"]
    found = sorted(faults(packages, rules))
    if arguments.advisories is not None:
        if not (arguments.advisories / "crates").is_dir():
            parser.error(f"{arguments.advisories} is not a checkout of the RustSec advisory database")
        found += sorted(advisories(arguments.advisories))
    for fault in found:
        print(fault, file=sys.stderr)
    print(f"{len(packages)} packages: {len(found)} faults")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
