#!/usr/bin/env bash
# Writes an OCI image for each binary of `make dist`.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${ORRERY_DIST_DIR:-dist}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for pair in x86_64:amd64 aarch64:arm64; do
    name=orrery-$version-${pair%:*}-unknown-linux-musl
    [[ -e $out/$name.tar.gz ]] || { echo "image: $out/$name.tar.gz is missing: run make dist" >&2; continue; }
    tar -xzf "$out/$name.tar.gz" -C "$work" "$name/orrery"
    python3 scripts/dist/image.py "$version" "$work/$name/orrery" "${pair#*:}" "$out/orrery-$version-image-${pair#*:}.tar"
done
