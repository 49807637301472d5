#!/usr/bin/env python3
"""Checks the links of all Markdown files: relative targets and headings must exist, and so must the pages of the book."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)\)")


def prose(text):
    """The text without code, in which brackets are not links."""
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.M | re.S)
    text = re.sub(r"(?:\A|\n\n)(?: {4}[^\n]*\n)+", "\n\n", text)
    return re.sub(r"`[^`\n]*`", "code", text)


def anchors(path):
    """The headings of a file as the fragments of their links."""
    found = set()
    text = re.sub(r"^( *)```.*?^\1```", "", path.read_text(), flags=re.M | re.S)
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.M):
        name = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).lower()
        found.add(re.sub(r"[^\w\- ]", "", name).replace(" ", "-"))
    return found


def markdown():
    """All Markdown files of the repository; without Git all that are not in a build directory."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        found = [ROOT / name for name in listed.stdout.splitlines()]
    else:
        found = [path for path in ROOT.rglob("*.md") if not {"target", "node_modules", "dist"} & set(path.parts)]
    return [path for path in found if path.exists()]


def main():
    files = markdown()
    problems, count = [], 0
    for path in files:
        for target in LINK.findall(prose(path.read_text())):
            if re.match(r"[a-z]+:", target):
                continue
            count += 1
            name, _, fragment = target.partition("#")
            goal = (path.parent / name).resolve() if name else path
            where = path.relative_to(ROOT)
            if not goal.exists():
                problems.append(f"{where}: {target} does not exist")
            elif fragment and goal.suffix == ".md" and fragment not in anchors(goal):
                problems.append(f"{where}: {target} names no heading")
    pages = {(ROOT / "docs" / target).resolve() for target in LINK.findall((ROOT / "docs/SUMMARY.md").read_text())}
    for path in files:
        if path.is_relative_to(ROOT / "docs") and path.name != "SUMMARY.md" and path not in pages:
            print(f"links: {path.relative_to(ROOT)} is not in docs/SUMMARY.md and so not in the book")
    for problem in problems:
        print(f"links: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"links: {count} links in {len(files)} files")


main()
