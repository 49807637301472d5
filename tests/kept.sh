# Packages that tests need, installed once for each version of their lock file and kept between runs. To be sourced.
# shellcheck shell=bash

# Two runs at the same time must not install into the same directory.
locked() { # directory, command...
  local directory=$1
  shift
  mkdir -p "$directory"
  (
    if command -v flock >/dev/null; then
      exec 9>"$directory/.lock"
      flock 9
    fi
    "$@"
  )
}

# Prints the virtual environment that has exactly the packages of a requirements file.
python_environment() { # cache directory, requirements file
  local python=${PYTHON:-python3} version lock
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  lock=$(sha256sum "$2" | cut -c-16)
  locked "$1" make_python_environment "$1/$version-$lock" "$2" "$python" >&2
  echo "$1/$version-$lock"
}

make_python_environment() { # environment, requirements file, python
  [[ ! -e $1/.complete ]] || return 0
  rm -rf "$1"
  "$3" -m venv "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$2"
  touch "$1/.complete"
}

# Prints the directory that has the packages of a package-lock.json in `node_modules`.
node_packages() { # cache directory, directory with package.json and package-lock.json
  local lock
  lock=$(sha256sum "$2/package-lock.json" | cut -c-16)
  locked "$1" make_node_packages "$1/$lock" "$2" >&2
  echo "$1/$lock"
}

make_node_packages() { # target, directory with package.json and package-lock.json
  [[ ! -e $1/.complete ]] || return 0
  rm -rf "$1"
  mkdir -p "$1"
  cp "$2/package.json" "$2/package-lock.json" "$1/"
  (cd "$1" && npm ci --no-audit --no-fund --loglevel=error)
  touch "$1/.complete"
}
