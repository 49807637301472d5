# What the scripts of `make dist`, `make image` and `make test-dist` share; they source it in the root of the repository.
# shellcheck shell=bash

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
mkdir -p "${ORRERY_DIST_DIR:-dist}"
out=$(realpath "${ORRERY_DIST_DIR:-dist}")
cache=${ORRERY_CACHE_DIR:-$HOME/.cache/orrery}
# The time of the commit, so that the same commit gives the same files.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

pass() { echo "ok: $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

# A virtual environment in the cache with these packages from the Python package index: environment NAME PACKAGE...
environment() {
    local folder=$cache/$1
    shift
    if [[ ! -e $folder/.complete ]]; then
        python3 -m venv "$folder"
        "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
        touch "$folder/.complete"
    fi
    echo "$folder"
}
