#!/usr/bin/env bash
# What the action does: unpacks a release, starts a server in memory, waits until it is ready, and tells the job where it is.
set -euo pipefail

work=$RUNNER_TEMP/orrery
mkdir -p "$work"
archive=${INPUT_ARCHIVE:-}
if [[ -z $archive ]]; then
    name=orrery-$INPUT_VERSION-$(uname -m | sed 's/arm64/aarch64/')-unknown-linux-musl
    gh release download "v$INPUT_VERSION" --repo orrery-db/orrery --pattern "$name.tar.gz" --pattern SHA256SUMS --dir "$work" --clobber
    (cd "$work" && grep "  $name.tar.gz\$" SHA256SUMS | sha256sum --quiet -c)
    archive=$work/$name.tar.gz
fi
mkdir -p "$work/bin"
tar -xzf "$archive" -C "$work/bin" --strip-components 1
echo "$work/bin" >>"$GITHUB_PATH"

containers=()
[[ -z ${INPUT_CONTAINERS:-} ]] || containers=(--containers "$INPUT_CONTAINERS")
# shellcheck disable=SC2086 # the arguments are words
nohup "$work/bin/orrery" serve --in-memory --profile emulator --listen 127.0.0.1:0 --output json "${containers[@]}" \
    ${INPUT_ARGUMENTS:-} >"$work/ready" 2>"$work/log" </dev/null &
server=$!
# The first line says that it is ready, and where.
until [[ -s $work/ready ]]; do
    kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; echo "orrery did not start" >&2; exit 1; }
    sleep 0.05
done
endpoint=$(sed 's/.*"endpoint":"\([^"]*\)".*/\1/' "$work/ready")
key='C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=='
{
    echo "ORRERY_ENDPOINT=$endpoint"
    echo "ORRERY_KEY=$key"
    echo "ORRERY_CONNECTION=AccountEndpoint=$endpoint;AccountKey=$key;"
} >>"$GITHUB_ENV"
{
    echo "endpoint=$endpoint"
    echo "connection-string=AccountEndpoint=$endpoint;AccountKey=$key;"
} >>"$GITHUB_OUTPUT"
echo "Orrery is at $endpoint (process $server)"
