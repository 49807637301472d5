#!/bin/sh
# Builds the release binary and measures its size, the start-up time on an empty store, and the idle memory. Fails if a
# limit is exceeded.
set -eu
cd "$(dirname "$0")/.."

binary_mb_max=30
ready_ms_max=100
idle_mb_max=30

cargo build --release --package orrery
binary="${CARGO_TARGET_DIR:-target}/release/orrery"
work="$(mktemp -d)"
pid=""
finish() {
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT INT TERM

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# The best of five starts, each on an empty store: from starting the process to the first answered request.
ready_ms=""
for run in 1 2 3 4 5; do
    mkfifo "$work/ready-$run"
    before="$(now_ms)"
    "$binary" serve --listen 127.0.0.1:0 --data "$work/data-$run" --output json >"$work/ready-$run" 2>"$work/log-$run" &
    pid=$!
    if ! read -r line <"$work/ready-$run"; then
        cat "$work/log-$run" >&2
        exit 1
    fi
    port="$(printf '%s' "$line" | sed 's/.*"port":\([0-9]*\).*/\1/')"
    curl --silent --fail --output /dev/null "http://127.0.0.1:$port/_orrery/health"
    took=$(($(now_ms) - before))
    if [ -z "$ready_ms" ] || [ "$took" -lt "$ready_ms" ]; then
        ready_ms="$took"
    fi
    if [ "$run" -lt 5 ]; then
        kill "$pid"
        wait "$pid"
        pid=""
    fi
done

# Idle memory, a moment after the last start.
sleep 2
idle_kb="$(sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$pid/status")"
binary_bytes="$(wc -c <"$binary")"

failed=0
report() { # name, measured, limit, unit
    verdict=ok
    if [ "$(awk -v a="$2" -v b="$3" 'BEGIN { print (a > b) }')" = 1 ]; then
        verdict="over the limit"
        failed=1
    fi
    printf '%-28s %8s %s (limit %s %s): %s\n' "$1" "$2" "$4" "$3" "$4" "$verdict"
}
report "binary size" "$(awk -v b="$binary_bytes" 'BEGIN { printf "%.1f", b / 1048576 }')" "$binary_mb_max" MB
report "ready on an empty store" "$ready_ms" "$ready_ms_max" ms
report "memory when idle" "$(awk -v k="$idle_kb" 'BEGIN { printf "%.1f", k / 1024 }')" "$idle_mb_max" MB
exit "$failed"
