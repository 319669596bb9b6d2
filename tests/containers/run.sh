#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the images of docker_cluster/ and runs jobs in containers of them: sh tests/containers/run.sh [pytest arguments]
#
# As root, on Debian or Ubuntu: what is missing is installed with apt-get. Images are kept below ~/.cache and built anew
# when what they are made of changes.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

sh tools/venv.sh requirements.lock requirements-dev.lock

missing=
add() {
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
add /usr/sbin/sshd openssh-server
add ssh openssh-client
add ip iproute2
add nsenter util-linux
add rsync rsync
add buildah buildah
add podman podman
add runc runc
add catatonit catatonit
add debootstrap debootstrap
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "tests: installing$missing" >&2
        install() {
            # shellcheck disable=SC2086
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
        }
        { install || { apt-get update -qq && install; }; } >&2
    else
        echo "tests: containers need root and$missing (as root on Debian: apt-get install$missing)" >&2
    fi
fi

export PADDLE_TEST_CONTAINERS=1
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
unset PYTHONDONTWRITEBYTECODE
exec .venv/bin/python -m pytest tests/containers "$@"
