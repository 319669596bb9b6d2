#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes .venv from a lock file when it is missing or stale, and compiles the kernels: sh tools/venv.sh requirements.lock [more.lock ...]
#
# Needs python3 3.11 or newer. On Debian and Ubuntu the venv module is a package of its own (python3-venv): as root
# it is installed, otherwise the message says how. Nothing else of the machine is changed.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
venv="$root/.venv"
stamp="$venv/.locks"

die() {
    printf '%s\n' "$@" >&2
    exit 2
}

find_python() {
    for candidate in ${PADDLE_PYTHON:-} python3 python3.13 python3.12 python3.11; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

install_venv_module() {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing python3-venv" >&2
        { apt-get install -y -qq python3-venv || { apt-get update -qq && apt-get install -y -qq python3-venv; }; } >&2
    else
        die "setup: python3 has no venv module with pip in it." "       On Debian or Ubuntu: sudo apt install python3-venv   then run this again."
    fi
}

# The runtime's loops in C, for this machine; without them the plain forms do the work. If that fails, for want of a
# compiler or of the network, the next setup after a day may fetch a compiler again; until then setups stay offline.
make_kernels() {
    tried="$venv/.kernels-not-built"
    [ -n "$(find "$tried" -mmin -1440 2>/dev/null)" ] && set -- --offline
    if PYTHONPATH="$root/runtime" "$venv/bin/python" -P -m paddle.kernels.build "$@"; then
        rm -f "$tried"
    elif [ $# = 0 ]; then
        (: >"$tried") 2>/dev/null || true # in a subshell: a failed redirection of : ends a POSIX shell
    fi
}

[ $# -gt 0 ] || die "usage: sh tools/venv.sh LOCK [LOCK ...]"
for lock in "$@"; do
    [ -f "$root/$lock" ] || die "setup: lock file $root/$lock is missing: is the checkout complete?"
done

# A stamp holds one line a lock: "<checksum> <size> <name>". A venv that has more locks installed than asked for is fine.
fresh=yes
for lock in "$@"; do
    line=$(cd "$root" && cksum "$lock")
    grep -qxF "$line" "$stamp" 2>/dev/null || fresh=no
done
if [ "$fresh" = yes ] && "$venv/bin/python" -c '' 2>/dev/null; then
    make_kernels
    exit 0
fi

python=$(find_python) || die "setup: no Python 3.11 or newer found (looked for python3, python3.11 ... python3.13)." \
    "       Install one, or name it: PADDLE_PYTHON=/path/to/python3 sh $0 $*"
"$python" -c 'import ensurepip' 2>/dev/null || install_venv_module

if ! "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "setup: making .venv with $("$python" --version)" >&2
    rm -rf "$venv"
    "$python" -m venv "$venv" || die "setup: $python -m venv $venv failed (see above)"
fi
# Beside the installation, which keeps one core busy; the compilation needs Python's standard library alone.
make_kernels &
kernels=$!
for lock in "$@"; do
    echo "setup: installing $lock" >&2
    # Most modules of the tools for developers are never imported, and Python compiles the others at the first import.
    case "$lock:${PYTHONDONTWRITEBYTECODE:-}" in
        *-dev.lock:) compile=--no-compile ;;
        *) compile=--compile ;;
    esac
    "$venv/bin/python" -m pip install --quiet "$compile" --disable-pip-version-check --require-hashes -r "$root/$lock" || {
        wait
        die "setup: installing $lock failed. Is a package index reachable (pip's usual settings apply)?"
    }
done
: >"$stamp.new"
{
    [ -f "$stamp" ] && cat "$stamp"
    for lock in "$@"; do (cd "$root" && cksum "$lock"); done
} | sort -u >"$stamp.new"
mv "$stamp.new" "$stamp"
wait "$kernels"
