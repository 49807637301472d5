#!/usr/bin/env bash
# Runs the image in Podman, with a store of its own: the Dockerfile is built, its container is ready with a read-only root,
# in HTTP and in direct mode, and the Compose file starts one. Says so if there is no Podman. recipes.sh needs Docker.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/common.sh
source scripts/dist/common.sh

if [[ $(id -u) != 0 ]] || ! command -v podman >/dev/null || ! command -v runc >/dev/null; then
    echo "skipped: containers need root, podman and runc"
    exit 0
fi

work=$(mktemp -d)
# Podman raises its own limits, which a container without rights may not; these are within those of any machine.
cat >"$work/containers.conf" <<TEXT
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
TEXT
export CONTAINERS_CONF=$work/containers.conf
podman() { command podman --root "$work/store" --runroot "$work/run" --storage-driver vfs "$@"; }
finish() {
    podman rm --force --all --time 1 >/dev/null 2>&1 || true
    podman system reset --force >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT

architecture=$(dpkg --print-architecture)
podman load --quiet --input "$out/orrery-$version-image-$architecture.tar" >/dev/null
pass "the engine loads $(podman images --format '{{.Repository}}:{{.Tag}}, {{.Size}}' | head -1)"
loaded=$(podman images --format '{{.Id}}' | head -1)
podman build --quiet --format docker --build-arg TARGETARCH="$architecture" --tag docker.io/library/orrery:built . >/dev/null
podman tag "$loaded" "docker.io/library/orrery:$version"

for tag in built "$version"; do
    options=(--read-only --cap-drop ALL --security-opt no-new-privileges --publish 127.0.0.1::8081 --publish 127.0.0.1::10250 --volume /data)
    container=$(podman run --detach "${options[@]}" "docker.io/library/orrery:$tag" serve --profile emulator)
    port=$(podman port "$container" 8081/tcp | sed 's/.*://')
    until answer=$(curl -fsS "http://127.0.0.1:$port/ready" 2>/dev/null); do
        [[ $(podman inspect --format '{{.State.Running}}' "$container") == true ]] || { podman logs "$container" >&2; fail "the container of orrery:$tag"; }
        sleep 0.1
    done
    podman exec "$container" /usr/bin/orrery health >/dev/null || fail "orrery health in orrery:$tag"
    [[ $(podman inspect --format '{{.Config.User}}' "$container") == 65532:65532 ]] || fail "the user of orrery:$tag"
    direct=$(podman port "$container" 10250/tcp | sed 's/.*://')
    python3 - "$direct" <<'PYTHON' || fail "direct mode in orrery:$tag"
import socket, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as plain, context.wrap_socket(plain) as encrypted:
    assert encrypted.version() == "TLSv1.3", encrypted.version()
PYTHON
    podman exec "$container" /usr/bin/orrery databases create db >/dev/null 2>&1 || fail "a write in orrery:$tag"
    podman stop --time 20 "$container" >/dev/null
    [[ $(podman inspect --format '{{.State.ExitCode}}' "$container") == 0 ]] || fail "the container of orrery:$tag does not stop cleanly"
    pass "a container of orrery:$tag with a read-only root is ready ($answer), writes, and stops"
done

# Compose, as the file stands.
tools=$(environment dist-compose podman-compose)
printf '#!/bin/sh\nexec podman --root %s --runroot %s --storage-driver vfs "$@"\n' "$work/store" "$work/run" >"$work/podman"
chmod +x "$work/podman"
compose() { "$tools/bin/podman-compose" --podman-path "$work/podman" --project-name orrery-test "$@"; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
ORRERY_PORT=$(free_port)
ORRERY_DIRECT_PORT=$(free_port)
export ORRERY_PORT ORRERY_DIRECT_PORT
compose up --detach --no-build >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "compose up"; }
for _ in $(seq 100); do ! curl -fsS "http://127.0.0.1:$ORRERY_PORT/ready" >/dev/null 2>&1 || break; sleep 0.1; done
key=$(sed -n 's/.*AccountKey=\([^;]*\);.*/\1/p' compose.yaml)
listed=$("$out/image/$architecture/usr/bin/orrery" containers list --output csv --endpoint "http://127.0.0.1:$ORRERY_PORT" --key "$key")
[[ $listed == *shop,orders,/customer* ]] || fail "the container of the Compose file: $listed"
compose down >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "compose down"; }
pass "the Compose file starts a server with its container"
