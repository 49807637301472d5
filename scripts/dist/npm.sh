#!/usr/bin/env bash
# Packs the binaries as an npm package: npm.sh VERSION OUT TARGET_DIR TARGET...
set -euo pipefail

version=$1 out=$(realpath "$2") target_dir=$3
shift 3
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -r packaging/npm/. LICENSE-APACHE LICENSE-MIT "$stage/"
sed -i "s/\"version\": \"0.0.0\"/\"version\": \"$version\"/" "$stage/package.json"
for target in "$@"; do
    case $target in
        x86_64-*) folder=linux-x64 ;;
        aarch64-*) folder=linux-arm64 ;;
        *) echo "npm: no name for $target" >&2; exit 1 ;;
    esac
    install -D -m 755 "$target_dir/$target/release/orrery" "$stage/native/$folder/orrery"
done
(cd "$stage" && npm pack --silent --pack-destination "$out")
