#!/usr/bin/env bash
# Writes the files of the image (dist/image/ARCHITECTURE, for the Dockerfile) and an OCI image for each binary of `make
# dist`.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/common.sh
source scripts/dist/common.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for pair in x86_64:amd64 aarch64:arm64; do
    architecture=${pair#*:}
    name=orrery-$version-${pair%:*}-unknown-linux-musl
    [[ -e $out/$name.tar.gz ]] || { echo "image: $out/$name.tar.gz is missing: run make dist" >&2; continue; }
    tar -xzf "$out/$name.tar.gz" -C "$work" "$name/orrery"
    root=$out/image/$architecture
    rm -rf "$root"
    install -D -m 755 "$work/$name/orrery" "$root/usr/bin/orrery"
    install -d -m 755 "$root/etc"
    install -d -m 700 "$root/data"
    install -d -m 1777 "$root/tmp"
    printf 'root:x:0:0:root:/:/\nnonroot:x:65532:65532:nonroot:/data:/\n' >"$root/etc/passwd"
    printf 'root:x:0:\nnonroot:x:65532:\n' >"$root/etc/group"
    chmod 644 "$root/etc/passwd" "$root/etc/group"
    chmod 755 "$root" "$root/usr" "$root/usr/bin"
    python3 scripts/dist/image.py "$version" "$root" "$architecture" "$out/orrery-$version-image-$architecture.tar"
done
