#!/usr/bin/env bash
# Installs and starts everything that `make dist` and `make image` have written: archives, Debian packages, the image, the
# wheel and the npm package. Needs root for the package and the image, which run in a namespace and a chroot of their own;
# the ARM binary runs under qemu-aarch64-static.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=$(realpath "${ORRERY_DIST_DIR:-dist}")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
work=$(mktemp -d)
servers=()
finish() {
    for server in "${servers[@]}"; do kill "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; done
    umount -q "$work/root" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

pass() { echo "ok: $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

# Starts a server command on a free port, waits until it is ready, and asks it for its health.
try_server() { # name, client binary, command...
    local name=$1 client=$2
    shift 2
    mkfifo "$work/ready"
    "$@" serve --listen 127.0.0.1:0 --output json >"$work/ready" 2>"$work/log" &
    servers+=($!)
    local line port
    read -r line <"$work/ready" || { cat "$work/log" >&2; fail "$name does not start"; }
    rm "$work/ready"
    port=$(sed 's/.*"port":\([0-9]*\).*/\1/' <<<"$line")
    [[ $("$client" health --endpoint "http://127.0.0.1:$port") == ready ]] || fail "$name is not ready"
    kill "${servers[-1]}"
    wait "${servers[-1]}" || fail "$name does not stop cleanly"
    pass "$name starts, is ready, and stops"
}

(cd "$out" && sha256sum --quiet -c SHA256SUMS) && pass "checksums"
python3 - "$out/orrery-$version.cdx.json" <<'PYTHON'
import json, sys
bom = json.load(open(sys.argv[1]))
references = {component["bom-ref"] for component in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
assert bom["bomFormat"] == "CycloneDX" and len(references) > 100
assert all(set(entry["dependsOn"]) <= references for entry in bom["dependencies"])
PYTHON
pass "SBOM"

for archive in "$out"/orrery-"$version"-*-musl.tar.gz; do
    tar -xzf "$archive" -C "$work"
    folder=$work/$(basename "$archive" .tar.gz)
    for file in README.md LICENSE-MIT THIRD-PARTY-LICENSES.txt man/orrery.1 completions/orrery.bash; do
        [[ -s $folder/$file ]] || fail "$archive has no $file"
    done
    case $archive in
        *-"$(uname -m)"-*) run=() native=$folder/orrery ;;
        *-aarch64-*) run=(qemu-aarch64-static) ;;
        *) run=(qemu-x86_64-static) ;;
    esac
    readelf -l "$folder/orrery" | grep -q INTERP && fail "$archive holds a dynamic binary"
    [[ $("${run[@]}" "$folder/orrery" --version) == "orrery $version" ]] || fail "$archive holds another version"
    pass "$(basename "$archive") is complete and static"
done
for folder in "$work"/orrery-"$version"-*-musl; do
    case $folder in
        *-"$(uname -m)"-*) try_server "$(basename "$folder")" "$native" "$folder/orrery" ;;
        *) try_server "$(basename "$folder") under qemu" "$native" qemu-aarch64-static "$folder/orrery" ;;
    esac
done 2>&1 | sed "s/^/  /"

if [[ $(id -u) == 0 ]]; then
    # The Debian package, installed by dpkg on a copy of this system that nobody else sees.
    package=$out/orrery_${version}_$(dpkg --print-architecture).deb
    mkdir -p "$work/upper" "$work/scratch" "$work/root"
    unshare --mount bash -euo pipefail -s "$work" "$package" "$version" <<'SCRIPT'
work=$1 package=$2 version=$3
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/scratch" "$work/root"
mkdir -p "$work/root/run" "$work/root/packages"
mount -t tmpfs tmpfs "$work/root/run"
mount --bind "$(dirname "$package")" "$work/root/packages"
inside() { chroot "$work/root" "$@"; }
inside dpkg -i "/packages/$(basename "$package")" >/dev/null
[[ $(inside orrery --version) == "orrery $version" ]]
inside systemd-analyze verify /usr/lib/systemd/system/orrery.service
exposure=$(inside systemd-analyze security --no-pager --offline=true /usr/lib/systemd/system/orrery.service | tail -1)
echo "  unit: $exposure"
[[ $exposure == *OK* ]]
# As the unit starts it: another user, the production profile, its own key.
install -d -o 65534 -g 65534 "$work/root/run/state"
mkfifo "$work/root/run/ready"
chroot --userspec=65534:65534 "$work/root" env -i PATH=/usr/bin ORRERY_DATA=/run/state ORRERY_PROFILE=production \
    orrery serve --listen 127.0.0.1:0 --output json >"$work/root/run/ready" 2>"$work/log" &
server=$!
read -r line <"$work/root/run/ready" || { cat "$work/log" >&2; exit 1; }
endpoint=http://127.0.0.1:$(sed 's/.*"port":\([0-9]*\).*/\1/' <<<"$line")
inside orrery databases create db --endpoint "$endpoint" --key "$(cat "$work/root/run/state/account-key")" 2>/dev/null
! inside orrery databases create other --endpoint "$endpoint" 2>/dev/null
kill "$server"
wait "$server"
inside dpkg --purge orrery >/dev/null
! inside test -e /usr/bin/orrery
SCRIPT
    pass "$(basename "$package") installs, starts, has a sound unit, and is removed"

    for image in "$out"/orrery-"$version"-image-*.tar; do
        [[ -e $image ]] || continue
        [[ $(stat -c %s "$image") -lt 30000000 ]] || fail "$image is larger than 30 MB"
        case $image in *-"$(dpkg --print-architecture).tar") ;; *) continue ;; esac
        python3 - "$image" "$work/image" <<'PYTHON'
import io, json, sys, tarfile
layout = tarfile.open(sys.argv[1])
read = lambda name: layout.extractfile(name).read()
blob = lambda digest: read("blobs/sha256/" + digest.removeprefix("sha256:"))
manifest = json.loads(blob(json.loads(read("index.json"))["manifests"][0]["digest"]))
config = json.loads(blob(manifest["config"]["digest"]))["config"]
assert config["User"] == "65532:65532" and config["Healthcheck"]["Test"][-1] == "health"
for layer in manifest["layers"]:
    tarfile.open(fileobj=io.BytesIO(blob(layer["digest"]))).extractall(sys.argv[2], numeric_owner=True)
PYTHON
        try_server "$(basename "$image") as a user without rights" "$native" \
            env -i PATH="$PATH" ORRERY_DATA=/data chroot --userspec=65532:65532 "$work/image" /usr/bin/orrery
    done
else
    echo "skipped: the Debian package and the image need root"
fi

python3 -m venv "$work/lint"
"$work/lint/bin/pip" install --quiet kubernetes-validate pyyaml
"$work/lint/bin/kubernetes-validate" --strict packaging/kubernetes/*.yaml >"$work/log" || { cat "$work/log" >&2; fail "the manifests"; }
"$work/lint/bin/python" -c 'import yaml; yaml.safe_load(open("compose.yaml"))["services"]["orrery"]["image"]'
pass "the manifests for Kubernetes fit its schemas"

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-index --find-links "$out" orrery-bin synthetic-key
[[ $("$work/venv/bin/orrery" --version) == "orrery $version" ]] || fail "the wheel"
"$work/venv/bin/python" -c 'import orrery_bin, subprocess; subprocess.run([orrery_bin.binary(), "--version"], check=True)' >/dev/null
"$work/venv/bin/python" -c 'import synthetic_key'
"$work/venv/bin/pip" install --quiet pytest
mkdir "$work/suite"
printf '[pytest]\norrery_containers = shop/orders:/customer\n' >"$work/suite/pytest.ini"
cat >"$work/suite/test_orders.py" <<'PYTHON'
import subprocess
import orrery_bin


def test_a_container_is_there(orrery_server):
    command = [orrery_bin.binary(), "containers", "list", "--output", "csv", "--connection", orrery_server.connection_string]
    assert b"shop,orders,/customer" in subprocess.run(command, check=True, capture_output=True).stdout
PYTHON
"$work/venv/bin/python" -m pytest --quiet "$work/suite" >"$work/log" || { cat "$work/log" >&2; fail "the pytest fixture"; }
pass "the wheels install, and the pytest fixture has a server"
mkdir "$work/npm"
(cd "$work/npm" && npm init --yes >/dev/null && npm install --silent --offline "$out/orrery-$version.tgz" "$out"/synthetic-key-*.tgz)
[[ $(cd "$work/npm" && npx --no-install orrery --version) == "orrery $version" ]] || fail "the npm package"
pass "the npm packages install"
