#!/usr/bin/env python3
"""What the binary is made of, from `cargo metadata`: an SBOM in CycloneDX form and the licences of all dependencies.

    components.py sbom OUTPUT.json
    components.py licences OUTPUT.txt
"""

import hashlib
import json
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"]
# What must not be in the binary without a second thought. Every licence expression needs one of these.
PERMISSIVE = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "0BSD", "Unicode-3.0", "Unlicense",
              "CC0-1.0", "BSL-1.0", "MIT-0", "CDLA-Permissive-2.0", "Apache-2.0 WITH LLVM-exception"}
LICENCE_FILES = ("license", "licence", "copying", "notice", "unlicense")


def metadata():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", str(ROOT / "Cargo.toml")]
    for target in TARGETS:
        command += ["--filter-platform", target]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def components(data):
    """The packages that end up in the binary: what `orrery` needs at run time, and what that needs."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    packages = {package["id"]: package for package in data["packages"]}
    root = next(package["id"] for package in data["packages"] if package["name"] == "orrery")
    seen, queue = set(), [root]
    while queue:
        package = queue.pop()
        if package in seen:
            continue
        seen.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                queue.append(dependency["pkg"])
    chosen = sorted((packages[package] for package in seen), key=lambda package: (package["name"], package["version"]))
    edges = {package: sorted(dependency["pkg"] for dependency in nodes[package]["deps"] if dependency["pkg"] in seen)
             for package in seen}
    return root, chosen, edges


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def licence(package):
    return (package["license"] or "").replace("/", " OR ")


def is_permissive(expression):
    """Whether some choice of the expression needs permissive licences only. ANDs bind tighter than ORs."""
    expression = expression.replace("(", " ").replace(")", " ")
    for choice in expression.split(" OR "):
        if all(part.strip() in PERMISSIVE for part in choice.split(" AND ")):
            return True
    return False


def checksums():
    text = (ROOT / "Cargo.lock").read_text()
    found = {}
    for block in text.split("[[package]]"):
        fields = dict(line.split(" = ", 1) for line in block.splitlines() if " = " in line)
        if "checksum" in fields:
            found[(fields["name"].strip('"'), fields["version"].strip('"'))] = fields["checksum"].strip('"')
    return found


def sbom(output):
    data = metadata()
    root, chosen, edges = components(data)
    by_id = {package["id"]: package for package in chosen}
    known = checksums()
    listed = []
    for package in chosen:
        if package["id"] == root:
            continue
        entry = {"type": "library", "bom-ref": reference(package), "name": package["name"],
                 "version": package["version"], "purl": reference(package),
                 "licenses": [{"expression": licence(package)}]}
        checksum = known.get((package["name"], package["version"]))
        if checksum:
            entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package.get("repository"):
            entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        listed.append(entry)
    top = by_id[root]
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": reference(top), "name": "orrery",
                                   "version": top["version"], "purl": reference(top),
                                   "licenses": [{"expression": licence(top)}]}},
        "components": listed,
        "dependencies": [{"ref": reference(package), "dependsOn": [reference(by_id[edge]) for edge in edges[package["id"]]]}
                         for package in chosen],
    }
    # The same dependencies give the same number, so that a build can be repeated.
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    content["serialNumber"] = f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}"
    Path(output).write_text(json.dumps(content, indent=2) + "\n")
    print(f"{output}: {len(listed)} components")


def licences(output):
    root, chosen, _ = components(metadata())
    refused = [package for package in chosen if not is_permissive(licence(package))]
    if refused:
        for package in refused:
            print(f"{package['name']} {package['version']} is not permissive: {package['license']}", file=sys.stderr)
        sys.exit(1)
    texts = {}
    for package in chosen:
        # Our own crates are under the licences that are beside this file.
        if package["source"] is None:
            continue
        folder = Path(package["manifest_path"]).parent
        files = sorted(file for file in folder.iterdir() if file.is_file() and file.name.lower().startswith(LICENCE_FILES))
        text = "\n".join(file.read_text(errors="replace").strip() for file in files)
        text = text or f"This package ships no licence text. Its manifest says: {licence(package)}"
        texts.setdefault(text, []).append(f"{package['name']} {package['version']} ({licence(package)})")
    with open(output, "w") as file:
        file.write("Orrery contains the following packages.\n")
        for text, names in sorted(texts.items(), key=lambda pair: pair[1]):
            file.write("\n" + "=" * 80 + "\n" + "\n".join(names) + "\n" + "-" * 80 + "\n" + text + "\n")
    print(f"{output}: {sum(map(len, texts.values()))} packages, {len(texts)} licence texts")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("sbom", "licences"):
        sys.exit(__doc__)
    {"sbom": sbom, "licences": licences}[sys.argv[1]](sys.argv[2])
