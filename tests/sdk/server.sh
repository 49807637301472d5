# The server that a suite runs against, for those that are started from a shell: their `run` sources this.
#   ORRERY_ENDPOINT        a server that runs already; without it
#   ORRERY_BIN             the binary of a new one, which keeps everything in memory or,
#   ORRERY_TEST_STORE_URL  where this names a PostgreSQL server, in a schema of its own there
# `server_options`, an array, holds further options of a suite's server.
# Exports ORRERY_ENDPOINT. `work` names a directory for the run; it and the server go when the shell ends.
# shellcheck shell=bash

work=$(mktemp -d)
server=

finish() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT

if [ -z "${ORRERY_ENDPOINT:-}" ]; then
  store=(--in-memory)
  if [ -n "${ORRERY_TEST_STORE_URL:-}" ]; then
    joint='?'
    [[ $ORRERY_TEST_STORE_URL != *\?* ]] || joint='&'
    store=(--store "$ORRERY_TEST_STORE_URL${joint}schema=sdk_$(basename "$PWD")_$$")
  fi
  "${ORRERY_BIN:?is not set: it names the server binary}" serve --listen 127.0.0.1:0 "${store[@]}" --no-throttle "${server_options[@]:+${server_options[@]}}" >"$work/server.log" 2>&1 &
  server=$!
  for _ in $(seq 300); do
    port=$(grep -oE '(127\.0\.0\.1|localhost):[0-9]+' "$work/server.log" | grep -oE '[0-9]+$' | grep -vx 0 | head -n 1 || true)
    if [ -n "$port" ] && curl -fsS "http://127.0.0.1:$port/_orrery/health" >/dev/null 2>&1; then
      ORRERY_ENDPOINT=http://127.0.0.1:$port
      break
    fi
    kill -0 "$server" 2>/dev/null || { cat "$work/server.log" >&2; echo "the server ended before it was ready" >&2; exit 1; }
    sleep 0.1
  done
  [ -n "${ORRERY_ENDPOINT:-}" ] || { cat "$work/server.log" >&2; echo "the server was not ready in time" >&2; exit 1; }
fi
export ORRERY_ENDPOINT
