#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sets up what the tests need and runs them all: sh tests/run.sh [pytest arguments]
#
# All of them are shared by three workers, a module at a time, since many of these wait.
# As root the test hosts (network namespaces, each with its own sshd) run too; the packages they need are installed
# with apt-get where they are missing. Without root those tests skip and say why.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

sh tools/venv.sh requirements.lock requirements-dev.lock

missing=
command -v /usr/sbin/sshd >/dev/null 2>&1 || missing="$missing openssh-server"
command -v ssh >/dev/null 2>&1 || missing="$missing openssh-client"
command -v ip >/dev/null 2>&1 || missing="$missing iproute2"
command -v nsenter >/dev/null 2>&1 || missing="$missing util-linux"
command -v setfacl >/dev/null 2>&1 || missing="$missing acl"
command -v rsync >/dev/null 2>&1 || missing="$missing rsync"
command -v mpirun >/dev/null 2>&1 || missing="$missing openmpi-bin"
command -v mpiexec.hydra >/dev/null 2>&1 || missing="$missing mpich"
{ command -v slurmctld && command -v slurmd && command -v srun; } >/dev/null 2>&1 || missing="$missing slurm-wlm"
command -v munged >/dev/null 2>&1 || missing="$missing munge"
command -v kubectl >/dev/null 2>&1 || missing="$missing kubernetes-client"
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "tests: installing$missing" >&2
        # shellcheck disable=SC2086
        { apt-get install -y -qq $missing || { apt-get update -qq && apt-get install -y -qq $missing; }; } >&2
    else
        echo "tests: some tests will be skipped: install$missing to run them (as root: apt-get install$missing)" >&2
    fi
fi

# Two cores and many processes: one thread each, or they thrash.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# The tests start hundreds of Python processes: modules are compiled once, not by each of these.
unset PYTHONDONTWRITEBYTECODE

if [ $# -eq 0 ]; then
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/mypy
    set -- -n 3
fi
# Once, and not in a test's own time, or by several workers at once.
PYTHONPATH=runtime .venv/bin/python -P -c "from paddle.pserver.sparse.warming import warm_up; warm_up()"
exec .venv/bin/python -m pytest "$@"
