#!/usr/bin/env bash
# A PostgreSQL server for tests, in its own directory, on a Unix socket only unless a port is set.
#
#   postgres.sh serve [DIRECTORY]   prints its URL when it is ready and runs until its standard input is closed.
#                                   Without a directory it uses a temporary one and removes it at the end.
#   postgres.sh run COMMAND...      runs the command with ORRERY_TEST_STORE_URL set to such a server.
#   postgres.sh shell DIRECTORY     creates the directory and runs the shell commands on its standard input there, as the
#                                   server's user and with PostgreSQL's tools in the path.
#
# ORRERY_TEST_POSTGRES_PORT makes it listen on that local port as well. ORRERY_TEST_STANDBY_OF names the directory of
# another such server (and ORRERY_TEST_STANDBY_OF_PORT its port, if it has one) that a new one follows as a standby.
# ORRERY_TEST_FSYNC=on makes it durable. If ORRERY_TEST_STORE_URL is already set, that server is used.
set -euo pipefail

verb=${1:-}
[[ $# -gt 0 ]] && shift

find_server() {
    local found
    found=$(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin 2>/dev/null | sort -V | tail -1 || true)
    if [[ -z $found ]] && command -v pg_config >/dev/null; then found=$(pg_config --bindir); fi
    if [[ -z $found || ! -x $found/initdb || ! -x $found/postgres ]]; then
        echo "postgres.sh: PostgreSQL is not installed: run 'scripts/setup.sh postgres', or name a server in ORRERY_TEST_STORE_URL" >&2
        exit 3
    fi
    echo "$found"
}

# The server refuses to run as root.
as_server=()
[[ $(id -u) != 0 ]] || as_server=(setpriv --reuid=postgres --regid=postgres --clear-groups --)

serve() {
    temporary=
    bin=$(find_server)
    if [[ $# -gt 0 ]]; then
        directory=$1
        mkdir -p "$directory"
    else
        directory=$(mktemp -d "${TMPDIR:-/tmp}/orrery-pg.XXXXXX") # short: the name of a socket has at most 107 bytes
        temporary=1
    fi
    chmod 755 "$directory"
    [[ $(id -u) != 0 ]] || chown postgres "$directory"
    cd "$directory"
    port=${ORRERY_TEST_POSTGRES_PORT:-5432}
    if [[ ! -f $directory/data/PG_VERSION && -n ${ORRERY_TEST_STANDBY_OF:-} ]]; then
        "${as_server[@]}" "$bin/pg_basebackup" -D "$directory/data" -R -X stream -c fast --no-sync \
            -d "host=$ORRERY_TEST_STANDBY_OF port=${ORRERY_TEST_STANDBY_OF_PORT:-5432} user=postgres application_name=standby"
    elif [[ ! -f $directory/data/PG_VERSION ]]; then
        "${as_server[@]}" "$bin/initdb" -D "$directory/data" -U postgres -A trust --no-locale -E UTF8 --no-sync --no-instructions >/dev/null
    fi
    durable=(-c fsync=off -c synchronous_commit=off -c full_page_writes=off)
    [[ ${ORRERY_TEST_FSYNC:-off} != on ]] || durable=()
    # shellcheck disable=SC2086
    "${as_server[@]}" "$bin/postgres" -D "$directory/data" -k "$directory" \
        -h "${ORRERY_TEST_POSTGRES_PORT:+127.0.0.1}" -p "$port" "${durable[@]}" \
        -c shared_buffers=64MB -c max_connections=400 -c max_wal_size=256MB ${ORRERY_TEST_POSTGRES_OPTIONS:-} \
        >>"$directory/log" 2>&1 </dev/null &
    server=$!
    stop() {
        trap - EXIT TERM INT
        kill -QUIT "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        [[ -z $temporary ]] || { cd / && rm -rf "$directory"; }
    }
    trap stop EXIT
    trap 'exit 0' TERM INT
    until [[ -S $directory/.s.PGSQL.$port ]] && "$bin/pg_isready" -q -h "$directory" -p "$port"; do
        if ! kill -0 "$server" 2>/dev/null; then
            echo "postgres.sh: the server did not start:" >&2
            tail -5 "$directory/log" >&2
            exit 4
        fi
        sleep 0.02
    done
    echo "postgres://postgres@${directory//\//%2F}${ORRERY_TEST_POSTGRES_PORT:+:$port}/postgres"
    # Until the parent process or the server exits.
    exec 3<&0
    while kill -0 "$server" 2>/dev/null; do
        status=0
        read -r -t 1 -u 3 _ || status=$?
        [[ $status -gt 128 || $status -eq 0 ]] || break
    done
}

case $verb in
    serve) serve "$@" ;;
    run)
        if [[ -n ${ORRERY_TEST_STORE_URL:-} ]]; then exec "$@"; fi
        coproc SERVER { exec "$0" serve; }
        input=${SERVER[1]}
        if ! read -r -u "${SERVER[0]}" url; then exit 3; fi
        status=0
        ORRERY_TEST_STORE_URL=$url "$@" || status=$?
        exec {input}>&-
        wait "$SERVER_PID" 2>/dev/null || true
        exit "$status"
        ;;
    shell)
        bin=$(find_server)
        mkdir -p "$1"
        [[ $(id -u) != 0 ]] || chown postgres "$1"
        cd "$1"
        PATH=$bin:$PATH exec "${as_server[@]}" bash -euo pipefail
        ;;
    *)
        echo "usage: postgres.sh serve [DIRECTORY] | run COMMAND... | shell DIRECTORY" >&2
        exit 2
        ;;
esac
