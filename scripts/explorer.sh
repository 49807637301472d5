#!/usr/bin/env bash
# Builds the explorer into explorer/embed, if its sources are newer. Without npm it says so and does nothing: the server
# works without the page.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../explorer"

if ! command -v npm >/dev/null; then
    ../scripts/setup.sh javascript || {
        echo "explorer: npm is not installed; the server is built without its web page" >&2
        exit 0
    }
fi

page=embed/index.html
if [[ -e $page && -d node_modules && -z $(find src index.html package-lock.json vite.config.js -newer "$page" -print -quit) ]]; then
    exit 0
fi
lock=$(sha256sum package-lock.json)
if [[ ! -e node_modules/.orrery-lock || $(<node_modules/.orrery-lock) != "$lock" ]]; then
    npm ci --no-audit --no-fund --loglevel=error
    printf '%s' "$lock" >node_modules/.orrery-lock
fi
npm run --silent build
