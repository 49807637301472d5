#!/usr/bin/env bash
# Builds the static binaries of `make dist` and packs them: dist/ then holds archives, Debian and RPM packages, Python
# wheels, npm packages, an SBOM and checksums.
#
#   build.sh [TARGET...]    [default: x86_64-unknown-linux-musl aarch64-unknown-linux-musl]
#
# Zig is the C compiler and linker for both, from the Python package index; nothing else is needed to cross-build.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/common.sh
source scripts/dist/common.sh

targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || targets=(x86_64-unknown-linux-musl aarch64-unknown-linux-musl)
target_dir=${CARGO_TARGET_DIR:-target}
tools=$(environment dist-tools ziglang cargo-zigbuild)
export PATH=$tools/bin:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$tools/bin/python3
rustup target add --toolchain "$(rustup show active-toolchain | cut -d' ' -f1)" "${targets[@]}" 2>/dev/null

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

begun=$SECONDS
for target in "${targets[@]}"; do
    cargo zigbuild --release --locked --package orrery --target "$target" ${ORRERY_DIST_CARGO_ARGS:-}
    echo "dist: built $target in $((SECONDS - begun)) s, $(stat -c %s "$target_dir/$target/release/orrery") bytes"
    begun=$SECONDS
done

python3 scripts/dist/components.py sbom "$out/orrery-$version.cdx.json"
python3 scripts/dist/components.py licences "$work/THIRD-PARTY-LICENSES.txt"

# What the commands say about themselves. A binary of this machine's kind writes it for all.
native=$target_dir/$(uname -m)-unknown-linux-musl/release/orrery
[[ -x $native ]] || native=$target_dir/debug/orrery
"$native" man "$work/man"
mkdir "$work/completions"
"$native" completions bash >"$work/completions/orrery.bash"
"$native" completions zsh >"$work/completions/_orrery"
"$native" completions fish >"$work/completions/orrery.fish"
"$native" completions powershell >"$work/completions/_orrery.ps1"

archive() { # directory to pack, its name inside, output
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$1" -cf - "$2" | gzip -9n >"$3"
}

for target in "${targets[@]}"; do
    binary=$target_dir/$target/release/orrery
    name=orrery-$version-$target
    stage=$work/$name
    mkdir -p "$stage"
    install -m 755 "$binary" "$stage/orrery"
    cp -r README.md CHANGELOG.md LICENSE LICENSE-APACHE LICENSE-MIT "$work/THIRD-PARTY-LICENSES.txt" "$work/man" \
        "$work/completions" packaging/systemd "$stage/"
    archive "$work" "$name" "$out/$name.tar.gz"
    scripts/dist/deb.sh "$binary" "$target" "$version" "$work" "$out"
    scripts/dist/rpm.sh "$target" "$version" "$work" "$out"
done

python3 scripts/dist/wheel.py "$version" "$out" "$target_dir" "${targets[@]}"
scripts/dist/npm.sh "$version" "$out" "$target_dir" "${targets[@]}"
# Copies: building leaves files beside the sources.
cp -r clients/python "$work/synthetic-key"
python3 -m pip wheel --quiet --no-deps --wheel-dir "$out" "$work/synthetic-key"
(cd clients/javascript && npm pack --silent --pack-destination "$out") >/dev/null

(cd "$out" && sha256sum -- *.tar.gz *.deb *.rpm *.whl *.tgz *.cdx.json >SHA256SUMS)
ls -l "$out"
