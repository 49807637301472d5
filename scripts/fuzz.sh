#!/bin/sh
# Fuzzes every target: scripts/fuzz.sh [seconds per target, default 60] [targets…]
# Needs a nightly compiler and cargo-fuzz (cargo install cargo-fuzz). Findings are in fuzz/artifacts.
set -eu
cd "$(dirname "$0")/../fuzz"

seconds="${1:-60}"
[ $# -gt 0 ] && shift
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "cargo-fuzz is not installed: run cargo install cargo-fuzz" >&2
    exit 2
fi
targets="${*:-$(cargo fuzz list)}"

# Test cases seed the corpus, so that a short run gets beyond the first byte.
seed() {
    mkdir -p "corpus/$1"
    ../scripts/fuzz_seeds.py "$1" "corpus/$1"
}

failed=""
for target in $targets; do
    seed "$target"
    echo "fuzzing $target for $seconds s"
    if ! cargo fuzz run "$target" -- -max_total_time="$seconds" -max_len=4096 -timeout=5 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1; then
        failed="$failed $target"
    fi
done
if [ -n "$failed" ]; then
    echo "failed:$failed" >&2
    exit 1
fi
