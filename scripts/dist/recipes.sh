#!/usr/bin/env bash
# Runs the Testcontainers recipes with the image in dist/ on a Docker engine: the local one, or the one in DOCKER_HOST. Says
# so if there is none.
#
#   recipes.sh [RECIPE...]    of python, node, go, java, dotnet [default: those whose tools are installed]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/common.sh
source scripts/dist/common.sh

if ! command -v docker >/dev/null || ! engine=$(docker version --format '{{.Server.Version}}' 2>/dev/null); then
    echo "skipped: the Testcontainers recipes need a Docker engine"
    exit 0
fi
recipes=("$@")
if [[ ${#recipes[@]} == 0 ]]; then
    for pair in python:python3 node:npm go:go java:mvn dotnet:dotnet; do
        if command -v "${pair#*:}" >/dev/null; then recipes+=("${pair%:*}"); else echo "skipped: no ${pair#*:} for the recipe for ${pair%:*}"; fi
    done
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
docker load --quiet --input "$out/orrery-$version-image-$(dpkg --print-architecture).tar" >/dev/null
# The reaper is an image from a registry; the recipes stop their containers themselves.
export TESTCONTAINERS_RYUK_DISABLED=true ORRERY_IMAGE=orrery:$version
before=$(docker ps --all --quiet | sort)

for recipe in "${recipes[@]}"; do
    cp -r "clients/testcontainers/$recipe" "$work/$recipe"
    (
        cd "$work/$recipe"
        case $recipe in
            python)
                tools=$(environment dist-testcontainers -r requirements.txt)
                "$tools/bin/python" -m pytest --quiet -p no:cacheprovider
                ;;
            node) npm install --silent --no-audit --no-fund && npm test ;;
            go) go test -count=1 ./... ;;
            java) mvn -B -ntp -q test ;;
            dotnet) dotnet test ;;
            *) fail "there is no recipe $recipe" ;;
        esac
    ) >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "the Testcontainers recipe for $recipe"; }
    [[ $(docker ps --all --quiet | sort) == "$before" ]] || fail "the recipe for $recipe leaves a container behind"
    pass "the Testcontainers recipe for $recipe, on Docker $engine"
done
