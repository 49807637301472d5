#!/usr/bin/env python3
"""Packs the binaries as Python wheels, so that `pip install` puts `orrery` on the path.

    wheel.py VERSION OUT TARGET_DIR TARGET...
"""

import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

PLATFORMS = {
    "x86_64-unknown-linux-musl": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "aarch64-unknown-linux-musl": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
}


def main(version, out, target_dir, targets):
    root = Path(__file__).resolve().parents[2]
    stamp = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")))[:6]
    for target in targets:
        platform = PLATFORMS[target]
        info = f"orrery_bin-{version}.dist-info"
        tags = "".join(f"Tag: py3-none-{part}\n" for part in platform.split("."))
        files = {
            f"orrery_bin-{version}.data/scripts/orrery": (Path(target_dir) / target / "release/orrery").read_bytes(),
            **{f"orrery_bin/{file.name}": file.read_bytes()
               for file in sorted((root / "packaging/python/orrery_bin").glob("*.py"))},
            f"{info}/METADATA": (
                f"Metadata-Version: 2.1\nName: orrery-bin\nVersion: {version}\n"
                "Summary: The orrery binary: a document database that speaks the protocol of Azure Cosmos DB\n"
                "License: Apache-2.0 OR MIT\nRequires-Python: >=3.10\nDescription-Content-Type: text/markdown\n\n"
                + (root / "packaging/python/README.md").read_text()).encode(),
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: orrery\nRoot-Is-Purelib: false\n{tags}".encode(),
            f"{info}/entry_points.txt": b"[pytest11]\norrery = orrery_bin.pytest_plugin\n",
            f"{info}/licenses/LICENSE-APACHE": (root / "LICENSE-APACHE").read_bytes(),
            f"{info}/licenses/LICENSE-MIT": (root / "LICENSE-MIT").read_bytes(),
        }
        record = "".join(
            f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
            for name, data in files.items())
        files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
        wheel = Path(out) / f"orrery_bin-{version}-py3-none-{platform}.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                entry = zipfile.ZipInfo(name, stamp)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o100755 if name.endswith("/orrery") else 0o100644) << 16
                archive.writestr(entry, data)
        print(wheel)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
