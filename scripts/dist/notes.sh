#!/usr/bin/env bash
# Prints the changes of this version, from the changelog.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/common.sh
source scripts/dist/common.sh
awk -v heading="## [$version]" 'index($0, "## ") == 1 { inside = index($0, heading) == 1; next } inside' CHANGELOG.md
