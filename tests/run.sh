#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sets up what the tests need and runs them: sh tests/run.sh [pytest arguments, such as tests/launcher]
#
# All of them are shared by four workers, a module at a time, since many of these wait.
# As root the test hosts (network namespaces, each with its own sshd) run too; the packages they need are installed
# with apt-get where they are missing. Without root those tests skip and say why.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

sh tools/venv.sh requirements.lock requirements-dev.lock

# Whether the tests that were named, or all, include some of a folder or file.
wanted() {
    for needed in "$@"; do
        [ -n "$paths" ] || return 0
        for path in $paths; do
            case "$needed/" in "$path"/*) return 0 ;; esac
            case "$path/" in "$needed"/*) return 0 ;; esac
        done
    done
    return 1
}

paths=
for argument; do
    case "$argument" in tests*)
        path=${argument%%::*}
        paths="$paths ${path%/}" ;;
    esac
done

# command, Debian's package, the tests that use it
missing=
while read -r command package tests; do
    # shellcheck disable=SC2086
    if wanted $tests && ! command -v "$command" >/dev/null 2>&1; then missing="$missing $package"; fi
done <<'END'
/usr/sbin/sshd openssh-server tests/cluster tests/launcher tests/docs tests/examples tests/fuzz
ssh openssh-client tests/cluster tests/launcher
ip iproute2 tests/cluster tests/launcher/engines tests/runtime
nsenter util-linux tests/cluster
setfacl acl tests/cluster/jobs/test_job_start.py tests/launcher/control tests/runtime/paddle_node
rsync rsync tests/benchmarks
mpirun openmpi-bin tests/cluster/jobs/engines tests/runtime/collective tests/runtime/test_env.py
mpiexec.hydra mpich tests/cluster/jobs/engines
slurmctld slurm-wlm tests/cluster/jobs/engines
slurmd slurm-wlm tests/cluster/jobs/engines
srun slurm-wlm tests/cluster/jobs/engines
munged munge tests/cluster/jobs/engines
kubectl kubernetes-client tests/cluster tests/launcher/engines/test_kubernetes_objects.py
END
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "tests: installing$missing" >&2
        # shellcheck disable=SC2086
        { apt-get install -y -qq $missing || { apt-get update -qq && apt-get install -y -qq $missing; }; } >&2
    else
        echo "tests: some tests will be skipped: install$missing to run them (as root: apt-get install$missing)" >&2
    fi
fi

if [ $# -gt 0 ]; then exec .venv/bin/python -m pytest "$@"; fi

.venv/bin/ruff check .
.venv/bin/ruff format --check .
# The type checker uses one core for a minute, in which the tests have work for the other one as well.
types=$(mktemp)
trap 'rm -f "$types"' EXIT
.venv/bin/mypy >"$types" 2>&1 &
checker=$!
code=0
.venv/bin/python -m pytest -n 4 || code=$?
wait "$checker" || code=$?
cat "$types"
exit "$code"
