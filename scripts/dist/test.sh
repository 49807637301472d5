#!/usr/bin/env bash
# Installs and starts everything that `make dist` and `make image` have written: archives, Debian and RPM packages, the
# image, the wheels, the npm packages, the action. Needs root for the packages and the image, which run in a namespace and a
# chroot of their own; the ARM binary runs under qemu-aarch64-static. lint.sh checks manifests, engine.sh runs containers.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/common.sh
source scripts/dist/common.sh

work=$(mktemp -d)
servers=()
finish() {
    for server in "${servers[@]}"; do kill "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; done
    umount -q "$work/root" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# Starts a server command on a free port, waits until it is ready, asks it for its health, and writes and queries an item.
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
    export ORRERY_ENDPOINT=http://127.0.0.1:$port ORRERY_DATABASE=tried ORRERY_CONTAINER=tried
    [[ $("$client" health) == ready ]] || fail "$name is not ready"
    {
        "$client" containers create --partition-key /pk && "$client" items put '{"id":"1","pk":"a","n":41}'
    } >/dev/null 2>"$work/client.log" || { cat "$work/client.log" >&2; fail "a write to $name"; }
    [[ $("$client" query run "SELECT VALUE c.n + 1 FROM c WHERE c.n > 40" -o jsonl) == 42 ]] || fail "a query to $name"
    "$client" databases delete tried >/dev/null 2>&1 || fail "a delete in $name"
    unset ORRERY_ENDPOINT ORRERY_DATABASE ORRERY_CONTAINER
    kill "${servers[-1]}"
    wait "${servers[-1]}" || fail "$name does not stop cleanly"
    pass "$name starts, is ready, writes, answers a query, and stops"
}

(cd "$out" && sha256sum --quiet -c SHA256SUMS) && pass "checksums"
tools=$(environment dist-sbom 'cyclonedx-python-lib[json-validation]')
"$tools/bin/python" - "$out/orrery-$version.cdx.json" <<'PYTHON'
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
text = open(sys.argv[1]).read()
error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
assert error is None, error
bom = json.loads(text)
references = {component["bom-ref"] for component in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
assert len(references) > 100 and any(reference.startswith("pkg:npm/preact@") for reference in references)
assert all(set(entry["dependsOn"]) <= references for entry in bom["dependencies"])
PYTHON
pass "the SBOM is CycloneDX 1.5 and complete"

data=$work/data
native=$work/orrery-$version-$(uname -m)-unknown-linux-musl/orrery
for archive in "$out"/orrery-"$version"-*-musl.tar.gz; do tar -xzf "$archive" -C "$work"; done
[[ -x $native ]] || fail "there is no archive for this machine"
for archive in "$out"/orrery-"$version"-*-musl.tar.gz; do
    folder=$work/$(basename "$archive" .tar.gz)
    for file in README.md LICENSE-MIT THIRD-PARTY-LICENSES.txt man/orrery.1 completions/orrery.bash; do
        [[ -s $folder/$file ]] || fail "$archive has no $file"
    done
    case $archive in
        *-"$(uname -m)"-*) run=() ;;
        *-aarch64-*) run=(qemu-aarch64-static) ;;
        *) run=(qemu-x86_64-static) ;;
    esac
    readelf -l "$folder/orrery" | grep -q INTERP && fail "$archive holds a dynamic binary"
    [[ $("${run[@]}" "$folder/orrery" --version) == "orrery $version" ]] || fail "$archive holds another version"
    pass "$(basename "$archive") is complete and static, $(stat -c %s "$folder/orrery") bytes"
    try_server "$(basename "$folder")${run:+ under ${run[0]}}" "$native" env ORRERY_DATA="$data" "${run[@]}" "$folder/orrery"
done

if [[ $(id -u) == 0 ]]; then
    # A package, installed on a copy of this system that nobody else sees, started as its unit does, and removed.
    mkdir -p "$work/root"
    try_package() { # package, commands that install and remove it
        rm -rf "$work/upper" "$work/scratch"
        mkdir -p "$work/upper" "$work/scratch"
        unshare --mount bash -euo pipefail -s "$work" "$version" "$@" <<'SCRIPT'
work=$1 version=$2 package=$3 install=$4 remove=$5
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/scratch" "$work/root"
mkdir -p "$work/root/run" "$work/root/packages"
mount -t tmpfs tmpfs "$work/root/run"
mount --bind "$(dirname "$package")" "$work/root/packages"
inside() { chroot "$work/root" "$@"; }
inside $install "/packages/$(basename "$package")" >/dev/null
[[ $(inside orrery --version) == "orrery $version" ]]
unit=/usr/lib/systemd/system/orrery.service
inside systemd-analyze verify --man=no $unit
exposure=$(inside systemd-analyze security --no-pager --offline=true $unit | tail -1)
echo "  unit: $exposure"
[[ $exposure == *OK* ]]
inside test -s /usr/share/man/man1/orrery.1.gz
# As the unit starts it: another user, the production profile, its own key, and told to systemd.
install -d -o 65534 -g 65534 "$work/root/run/state"
mkfifo "$work/root/run/ready"
chroot --userspec=65534:65534 "$work/root" env -i PATH=/usr/bin ORRERY_DATA=/run/state ORRERY_PROFILE=production \
    orrery serve --listen 127.0.0.1:0 --output json >"$work/root/run/ready" 2>"$work/log" &
server=$!
read -r line <"$work/root/run/ready" || { cat "$work/log" >&2; exit 1; }
endpoint=http://127.0.0.1:$(sed 's/.*"port":\([0-9]*\).*/\1/' <<<"$line")
key=$(cat "$work/root/run/state/account-key")
inside orrery databases create db --endpoint "$endpoint" --key "$key" >/dev/null 2>&1
! inside orrery databases create other --endpoint "$endpoint" 2>/dev/null
inside orrery containers create -d db -c c --partition-key /pk --endpoint "$endpoint" --key "$key" >/dev/null 2>&1
[[ $(inside orrery query run "SELECT VALUE COUNT(1) FROM c" -d db -c c --output jsonl --endpoint "$endpoint" --key "$key") == 0 ]]
new=$(inside orrery keys rotate primary --endpoint "$endpoint" --key "$key" 2>/dev/null)
[[ $(cat "$work/root/run/state/account-key") == "$new" ]]
kill "$server"
wait "$server"
inside $remove orrery >/dev/null 2>&1
! inside test -e /usr/bin/orrery
SCRIPT
        pass "$(basename "$1") installs, starts, answers a query, has a sound unit, and is removed"
    }
    try_package "$out/orrery_${version}_$(dpkg --print-architecture).deb" "dpkg -i" "dpkg --purge"
    # Debian's rpm knows no package of the system, so that dependencies are not looked at.
    rpm -K --nosignature "$out/orrery-$version-1.$(uname -m).rpm" >/dev/null || fail "the RPM package"
    try_package "$out/orrery-$version-1.$(uname -m).rpm" "rpm --dbpath /run/rpm -i --nodeps" "rpm --dbpath /run/rpm -e"

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
assert set(config["ExposedPorts"]) == {"8081/tcp", "10250/tcp"}, config
assert config["User"] == "65532:65532" and config["Healthcheck"]["Test"][-1] == "health"
for layer in manifest["layers"]:
    tarfile.open(fileobj=io.BytesIO(blob(layer["digest"]))).extractall(sys.argv[2], numeric_owner=True)
PYTHON
        try_server "$(basename "$image") as a user without rights" "$native" \
            env -i PATH="$PATH" ORRERY_DATA=/data chroot --userspec=65532:65532 "$work/image" /usr/bin/orrery
    done
else
    echo "skipped: the Debian and RPM packages and the image need root"
fi

# A project of its own with what pip installs.
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-index --find-links "$out" orrery-bin synthetic-key
[[ $("$work/venv/bin/orrery" --version) == "orrery $version" ]] || fail "the wheel"
"$work/venv/bin/python" -c 'import orrery_bin, subprocess; subprocess.run([orrery_bin.binary(), "--version"], check=True)' >/dev/null
"$work/venv/bin/python" -c 'import synthetic_key'
"$work/venv/bin/pip" install --quiet pytest
cp -r packaging/python/tests "$work/suite"
(unset ORRERY_BIN; "$work/venv/bin/python" -m pytest --quiet "$work/suite") >"$work/log" || { cat "$work/log" >&2; fail "the pytest fixture"; }
pass "the wheels install, and the pytest fixture has a server"
tools=$(environment dist-pipx pipx)
wheel=$(ls "$out"/orrery_bin-"$version"-py3-none-*"$(uname -m)".whl)
[[ $(PIPX_HOME=$work/pipx "$tools/bin/pipx" run --spec "$wheel" orrery --version 2>"$work/log") == "orrery $version" ]] || { cat "$work/log" >&2; fail "pipx run"; }
pass "pipx run starts the binary"

mkdir "$work/npm"
(cd "$work/npm" && npm init --yes >/dev/null && npm install --silent --offline "$out/orrery-$version.tgz" "$out/synthetic-key-$version.tgz")
[[ $(cd "$work/npm" && npx --no-install orrery --version) == "orrery $version" ]] || fail "the npm package"
(cd "$work/npm" && node --input-type=module -e 'import { Definition } from "synthetic-key"; if (!Definition) process.exit(1)')
try_server "npx orrery" "$native" "$work/npm/node_modules/.bin/orrery"
pass "the npm packages install"

# The action, as a job runs it.
mkdir "$work/runner"
for file in GITHUB_PATH GITHUB_ENV GITHUB_OUTPUT; do : >"$work/runner/$file"; done
started=$(RUNNER_TEMP=$work/runner GITHUB_PATH=$work/runner/GITHUB_PATH GITHUB_ENV=$work/runner/GITHUB_ENV \
    GITHUB_OUTPUT=$work/runner/GITHUB_OUTPUT INPUT_VERSION=$version INPUT_CONTAINERS=shop/orders:/customer \
    INPUT_ARCHIVE=$out/orrery-$version-$(uname -m)-unknown-linux-musl.tar.gz packaging/action/start.sh)
servers+=("$(sed 's/.*process \([0-9]*\).*/\1/' <<<"$started")")
listed=$(env PATH="$(cat "$work/runner/GITHUB_PATH"):$PATH" "$(grep ^ORRERY_CONNECTION= "$work/runner/GITHUB_ENV")" \
    orrery containers list --output csv)
[[ $listed == *shop,orders,/customer* ]] || fail "the action: $listed"
pass "the GitHub action starts a server and tells where it is"

scripts/dist/lint.sh
scripts/dist/engine.sh
scripts/dist/recipes.sh
