#!/usr/bin/env bash
# Installs missing prerequisites: `setup.sh build|postgres|browser|python|javascript|go|java|rust|dist|monitoring|docs`.
# Uses the system's packages; where it cannot install, it says what is needed.
set -euo pipefail

part=${1:-build}

package() { # Debian package
    if command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
        echo "setup: installing $1"
        apt-get install -y -qq "$1" >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq "$1" >/dev/null; }
    fi
}

install() { # command, Debian package
    command -v "$1" >/dev/null && return
    package "$2"
    command -v "$1" >/dev/null || { echo "setup: please install '$1' (Debian package $2)" >&2; exit 1; }
}

case $part in
    build | rust)
        install cc gcc
        if ! command -v cargo >/dev/null; then
            echo "setup: please install the Rust toolchain named in rust-toolchain.toml with rustup" >&2
            exit 1
        fi
        ;;
    postgres)
        if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && ! command -v initdb >/dev/null; then
            package postgresql
            ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || {
                echo "setup: please install PostgreSQL 15 or later (Debian package postgresql)" >&2
                exit 1
            }
        fi
        ;;
    browser) install chromium chromium ;;
    python)
        install python3 python3
        python3 -c 'import ensurepip, venv' 2>/dev/null || package python3-venv
        ;;
    javascript)
        install node nodejs
        install npm npm
        ;;
    go) install go golang-go ;;
    dist)
        install npm npm
        python3 -c 'import ensurepip, venv' 2>/dev/null || package python3-venv
        install dpkg-deb dpkg
        install rpmbuild rpm
        install readelf binutils
        install systemd-analyze systemd
        install go golang-go
        install qemu-aarch64-static qemu-user-static
        ;;
    java)
        install javac default-jdk-headless
        install mvn maven
        ;;
    monitoring)
        # Its tests say so where it is missing.
        command -v promtool >/dev/null || package prometheus || true
        ;;
    docs)
        if ! command -v mdbook >/dev/null; then
            # Not optimised and without its server: a minute instead of several, and a book of this size builds in a second.
            echo "setup: building mdbook"
            cargo install --quiet --locked --debug --no-default-features --features search mdbook
        fi
        ;;
    *)
        echo "setup: unknown part '$part'" >&2
        exit 2
        ;;
esac
