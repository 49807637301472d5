#!/usr/bin/env python3
"""Writes a container image without a container engine: an OCI layout with one layer, as an archive.

    image.py VERSION ROOT ARCHITECTURE OUTPUT.tar

ROOT is the tree of its files, which the Dockerfile copies too; its `data` belongs to the user without rights that the
server runs as. `docker load`, `podman load` and `skopeo copy oci-archive:OUTPUT.tar …` read it.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path

USER = 65532
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def add(archive, name, data=None, mode=0o644, owner=0):
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode, entry.uid, entry.gid = EPOCH, mode, owner, owner
    if data is None:
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    else:
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))


def layer(root):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(Path(root).rglob("*")):
            name = path.relative_to(root).as_posix()
            data = path.read_bytes() if path.is_file() else None
            add(archive, name, data, mode=path.stat().st_mode & 0o7777, owner=USER if name == "data" else 0)
    return buffer.getvalue()


def main(version, root, architecture, output):
    blobs = {}

    def blob(data, media_type):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    plain = layer(root)
    packed = blob(gzip.compress(plain, 9, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
    labels = {
        "org.opencontainers.image.title": "orrery",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
    }
    config = {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/bin", "ORRERY_LISTEN=0.0.0.0:8081", "ORRERY_DATA=/data"],
            "Entrypoint": ["/usr/bin/orrery"],
            "Cmd": ["serve"],
            "ExposedPorts": {"8081/tcp": {}, "10250/tcp": {}},
            "Volumes": {"/data": {}},
            "WorkingDir": "/data",
            "Labels": labels,
            "Healthcheck": {"Test": ["CMD", "/usr/bin/orrery", "health"], "Interval": 10_000_000_000,
                            "Timeout": 5_000_000_000, "StartPeriod": 5_000_000_000, "Retries": 3},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        "history": [{"created": created, "created_by": "make image"}],
    }
    described = blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": described,
                "layers": [packed]}
    entry = blob(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    entry["platform"] = {"os": "linux", "architecture": architecture}
    entry["annotations"] = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"orrery:{version}"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    # `docker load` of older engines reads this instead of the index.
    legacy = [{"Config": f"blobs/sha256/{described['digest'][7:]}", "RepoTags": [f"orrery:{version}"],
               "Layers": [f"blobs/sha256/{packed['digest'][7:]}"]}]
    with tarfile.open(output, "w") as archive:
        add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add(archive, "index.json", json.dumps(index).encode())
        add(archive, "manifest.json", json.dumps(legacy).encode())
        add(archive, "blobs", mode=0o755)
        add(archive, "blobs/sha256", mode=0o755)
        for digest, data in sorted(blobs.items()):
            add(archive, f"blobs/sha256/{digest}", data)
    print(f"{output}: {packed['size'] / 1e6:.1f} MB compressed, {len(plain) / 1e6:.1f} MB unpacked")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
