#!/usr/bin/env python3
"""What the binary is made of, from `cargo metadata` and the lock file of the explorer: an SBOM in CycloneDX form and the licences of all dependencies.

    components.py sbom OUTPUT.json
    components.py licences OUTPUT.txt
"""

import base64
import hashlib
import json
import subprocess
import sys
import urllib.parse
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


def page_packages():
    """The packages that are part of the explorer, which the binary serves, if it was built."""
    explorer = ROOT / "explorer"
    if not (explorer / "embed/index.html").exists():
        return []
    locked = json.loads((explorer / "package-lock.json").read_text())["packages"]
    # "integrity" is an algorithm and the digest in base64.
    return [{"name": place.removeprefix("node_modules/"), "version": entry["version"], "licence": entry["license"],
             "sha512": base64.b64decode(entry["integrity"].removeprefix("sha512-")).hex(), "folder": explorer / place}
            for place, entry in sorted(locked.items()) if place and not entry.get("dev")]


def page_reference(package):
    return f"pkg:npm/{urllib.parse.quote(package['name'], safe='/')}@{package['version']}"


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
    pages = page_packages()
    for package in pages:
        listed.append({"type": "library", "bom-ref": page_reference(package), "name": package["name"],
                       "version": package["version"], "purl": page_reference(package),
                       "licenses": [{"expression": package["licence"]}],
                       "hashes": [{"alg": "SHA-512", "content": package["sha512"]}]})
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
    own = next(entry for entry in content["dependencies"] if entry["ref"] == reference(top))
    own["dependsOn"] += [page_reference(package) for package in pages]
    # The same dependencies give the same number, so that a build can be repeated.
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    content["serialNumber"] = f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}"
    Path(output).write_text(json.dumps(content, indent=2) + "\n")
    print(f"{output}: {len(listed)} components")


def licences(output):
    root, chosen, _ = components(metadata())
    # Our own crates are under the licences that are beside this file.
    parts = [(package["name"], package["version"], licence(package), Path(package["manifest_path"]).parent)
             for package in chosen if package["source"] is not None]
    parts += [(package["name"], package["version"], package["licence"], package["folder"]) for package in page_packages()]
    refused = [part for part in parts if not is_permissive(part[2])]
    if refused:
        for name, version, expression, _ in refused:
            print(f"{name} {version} is not permissive: {expression}", file=sys.stderr)
        sys.exit(1)
    texts = {}
    for name, version, expression, folder in parts:
        files = sorted(file for file in folder.iterdir() if file.is_file() and file.name.lower().startswith(LICENCE_FILES))
        text = "\n".join(file.read_text(errors="replace").strip() for file in files)
        text = text or f"This package ships no licence text. Its manifest says: {expression}"
        texts.setdefault(text, []).append(f"{name} {version} ({expression})")
    with open(output, "w") as file:
        file.write("Orrery contains the following packages.\n")
        for text, names in sorted(texts.items(), key=lambda pair: pair[1]):
            file.write("\n" + "=" * 80 + "\n" + "\n".join(names) + "\n" + "-" * 80 + "\n" + text + "\n")
    print(f"{output}: {sum(map(len, texts.values()))} packages, {len(texts)} licence texts")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("sbom", "licences"):
        sys.exit(__doc__)
    {"sbom": sbom, "licences": licences}[sys.argv[1]](sys.argv[2])
