#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs as each rank of mpirun: starts one parameter server and one trainer of the job, which end together.
#
#   mpirun -hostfile machines -n 3 --map-by ppr:1:node --bind-to none /home/tutorial/start_mpi_train.sh [arguments of train.py]
#
# Copy this script to the same directory on every host, with train.py, that host's data and the file `machines`. The
# ranks run on the first hosts in `machines`, one rank per host. Logs are written to logs/ in that directory. mpirun
# can pass these variables (-x NAME):
#
#   PYTHON            the hosts' Python (python3), with numpy and pyzmq; set PYTHONPATH if `paddle` is not installed
#   PADDLE_INIT_*     flags: PADDLE_INIT_NUM_PASSES, PADDLE_INIT_PORT (7164), PADDLE_INIT_USE_GPU (False), ...
#   PADDLE_JOB_KEY    64 hex digits; encrypts the traffic between trainers and parameter servers
#   SHARED_HOME       set it if the hosts share this directory; logs are then written to logs/node_<rank>/
set -eu

fail() {
    echo "start_mpi_train.sh: on $(uname -n): $1" >&2
    exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

rank=${OMPI_COMM_WORLD_RANK:-} size=${OMPI_COMM_WORLD_SIZE:-}
[ -n "$rank" ] && [ -n "$size" ] ||
    fail "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are not set: start this script with mpirun -hostfile machines -n 3 $here/start_mpi_train.sh"
[ "${OMPI_COMM_WORLD_LOCAL_SIZE:-1}" = 1 ] ||
    fail "$OMPI_COMM_WORLD_LOCAL_SIZE ranks on this host, expected one: Open MPI takes a host for as many slots as it has cores. Add --map-by ppr:1:node to mpirun, or slots=1 to each line of machines"
[ -f machines ] || fail "$here/machines does not exist: copy the hostfile of mpirun to every host"
hosts=$(awk -v size="$size" '
    { sub(/#.*/, "") }
    NF { sub(/.*@/, "", $1) }
    NF && !($1 in seen) && n < size { seen[$1]; printf "%s%s", (n++ ? "," : ""), $1 }
' machines)
count=$(printf '%s' "$hosts" | tr ',' '\n' | grep -c . || true)
[ "$count" = "$size" ] || fail "mpirun starts $size ranks, but $here/machines has $count hosts: expected one host per rank"

export PADDLE_INIT_USE_GPU="${PADDLE_INIT_USE_GPU:-False}"
export PADDLE_INIT_TRAINER_COUNT="${PADDLE_INIT_TRAINER_COUNT:-1}"
export PADDLE_INIT_PORT="${PADDLE_INIT_PORT:-7164}"
export PADDLE_INIT_PORTS_NUM="${PADDLE_INIT_PORTS_NUM:-1}"
export PADDLE_INIT_PORTS_NUM_FOR_SPARSE="${PADDLE_INIT_PORTS_NUM_FOR_SPARSE:-1}"
export PADDLE_INIT_NUM_GRADIENT_SERVERS="$size"
export PADDLE_INIT_TRAINER_ID="$rank"
export PADDLE_INIT_PSERVERS="$hosts"

# In a checkout, the runtime is next to this directory and need not be installed.
[ -n "${PYTHONPATH:-}" ] || [ ! -d ../runtime/paddle ] || export PYTHONPATH="${here%/*}/runtime"

logs=logs
[ -z "${SHARED_HOME:-}" ] || logs=logs/node_$rank
# $PPID is mpirun, or orted on this host. When that process exits for any reason, the pserver and the trainer end.
exec "${PYTHON:-python3}" -P -m paddle launch_v2 --parent="$PPID" --log_dir="$logs" train.py "$@"
