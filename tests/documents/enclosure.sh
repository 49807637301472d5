#!/usr/bin/env bash
# Runs a command on a machine of its own as far as the documents can tell: its own loopback interface, so that port 8081
# is free; its own processes, which end with it; writable copies of /etc, /var, /usr/local and /opt, which are discarded.
set -euo pipefail

if [[ ${1:-} == --check ]]; then
    exec unshare --user --map-root-user --net --mount --pid --fork --kill-child --mount-proc true 2>/dev/null
fi
if [[ ${1:-} != --inside ]]; then
    exec unshare --user --map-root-user --net --mount --pid --fork --kill-child --mount-proc "$0" --inside "$@"
fi
shift
python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 1))'
scratch=$(mktemp -d)
mount -t tmpfs scratch "$scratch"
for directory in etc var usr/local opt; do
    mkdir -p "$scratch/$directory/upper" "$scratch/$directory/work"
    mount -t overlay overlay \
        -o "lowerdir=/$directory,upperdir=$scratch/$directory/upper,workdir=$scratch/$directory/work" "/$directory"
done
mkdir "$scratch/tmp"
export TMPDIR=$scratch/tmp
"$@"
