#!/usr/bin/env bash
# Compiles for the systems that no test runs on, without linking: `check-targets.sh [TARGET...]`. Zig compiles the C parts.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/dist/common.sh
source scripts/dist/common.sh

targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || targets=(aarch64-apple-darwin x86_64-apple-darwin x86_64-pc-windows-gnu)
tools=$(environment dist-tools ziglang cargo-zigbuild)
export PATH=$tools/bin:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$tools/bin/python3
rustup target add --toolchain "$(rustup show active-toolchain | cut -d' ' -f1)" "${targets[@]}" 2>/dev/null
# Zig refuses the build date that mimalloc prints in its statistics.
export CFLAGS=-Wno-date-time
for target in "${targets[@]}"; do
    cargo-zigbuild check --locked --package orrery --target "$target"
    pass "compiles for $target"
done
