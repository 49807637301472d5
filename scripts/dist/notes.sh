#!/usr/bin/env bash
# Prints the changes of this version, from the changelog.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
awk -v heading="## [$version]" 'index($0, "## ") == 1 { inside = index($0, heading) == 1; next } inside' CHANGELOG.md
