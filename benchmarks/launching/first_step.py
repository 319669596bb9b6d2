# SPDX-License-Identifier: Apache-2.0
"""Measures the wait for the first trained batch on three hosts: paddle.py, compared with rsync and ssh by hand.

Both sides copy word2vec of workspace_template to every host and start the same pserver and the same trainer there, with
the encrypted wire. By hand, these are two command lines of a script: `rsync` to all hosts in parallel, the runtime in
addition to the workspace; then `ssh` to all hosts in parallel, where a shell starts pserver and trainer.
The clock runs from the command until every trainer has trained a batch. All hosts share this machine's monotonic clock.
"""

from __future__ import annotations

import re
import secrets
import time
from pathlib import Path

from benchmarks.launching.our_jobs import LIMIT_S, OurJobs, set_aside, times_of
from benchmarks.launching.rivals import Rivals
from benchmarks.launching.run import ROOT
from benchmarks.scaling import prepare
from tests.cluster.hosts import Cluster

_FIRST = re.compile(r"^first ([\d.]+)$", re.MULTILINE)
BATCHES = 6  # two after the first, whose times are not used
OURS, THEIRS = "first-ours", "first-theirs"
PORTS = ("--port=7164", "--ports_num=1", "--ports_num_for_sparse=1")
# $1: the rank, $2: number of hosts, $3: all addresses, $4: the hosts' Python; the key arrives on standard input
_START = """\
read -r PADDLE_JOB_KEY
cd "$(dirname "$0")"
export PADDLE_JOB_KEY PADDLE_CLUSTER_TRAIN=True PADDLE_INIT_USE_GPU=False PADDLE_INIT_TRAINER_COUNT=1
export PADDLE_INIT_PORT=7164 PADDLE_INIT_PORTS_NUM=1 PADDLE_INIT_PORTS_NUM_FOR_SPARSE=1
export PADDLE_INIT_NUM_GRADIENT_SERVERS=$2 PADDLE_INIT_TRAINER_ID=$1 PADDLE_INIT_PSERVERS=$3
export PADDLE_TRAINER_ID=$1 PADDLE_TRAINERS_NUM=$2 PYTHONPATH=$PWD/../runtime
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 GLOG_logtostderr=1
export POD_IP=$(echo $3 | cut -d, -f$(($1 + 1)))
"$4" -P -m paddle pserver %s --num_gradient_servers=$2 >server.log 2>&1 &
"$4" -u measured.py --manual_settings 2>train.log; code=$?
kill $! 2>/dev/null
exit $code
"""
_BY_HAND = """\
ssh=$1 from=$2 to=$3 addresses=$4 python=$5; shift 5
printf '%s\\n' "$@" | xargs -P $# -I{} rsync -aL --exclude=__pycache__ -e "$ssh" "$from/" "{}:$to/" || exit
rank=0
for host; do
    echo "$PADDLE_JOB_KEY" | $ssh "$host" sh "$to/ws/start.sh" $rank $# "$addresses" "$python" & all="$all $!"
    rank=$((rank + 1))
done
for one in $all; do wait $one || exit; done
"""


class FirstStep:
    """Runs both sides on one cluster."""

    def __init__(self, cluster: Cluster, scratch: Path, python: str) -> None:
        """Create the workspace, twice, since ours receives logs.

        Args:
            python: the interpreter on the hosts.
        """
        self._cluster, self._python = cluster, python
        self._jobs, self._rivals = OurJobs(cluster, scratch), Rivals(cluster)
        self._ours, self._theirs = scratch / "first-ours", scratch / "first-theirs"
        for workspace in (self._ours, self._theirs / "ws"):
            prepare(workspace, len(cluster.hosts), BATCHES)
        (self._theirs / "ws" / "start.sh").write_text(_START % " ".join(PORTS))
        (self._theirs / "runtime").symlink_to(ROOT / "runtime")

    def forget(self) -> None:
        """Reset the hosts to the state before any job."""
        for host in self._cluster.hosts:
            for name in (OURS, THEIRS, ".cache"):
                set_aside(host.files.fs / "root" / name)

    def ours(self) -> float:
        """Return the seconds until the first batch with `paddle.py`."""
        begun = time.monotonic()
        launch = self._jobs.start(
            self._ours, "--entry=measured.py", "--manual_settings", root=OURS, mode="v2"
        )
        launch.wait(LIMIT_S)
        times_of(launch)  # raises an error if it failed
        logs = [path.read_text() for path in self._ours.glob("log/node_*/train.log")]
        return self._last("".join(logs)) - begun

    def theirs(self) -> float:
        """Return the seconds until the first batch with rsync and ssh."""
        addresses = ",".join(host.address for host in self._cluster.hosts)
        argv = self._rivals.script(_BY_HAND, str(self._theirs), f"/root/{THEIRS}", addresses, self._python)
        begun = time.monotonic()
        # The trainer that ends last may find the others' pservers gone: the measurement is over by then.
        argv = ["env", f"PADDLE_JOB_KEY={secrets.token_hex(32)}", *argv]
        done = self._cluster.run(argv, check=False, timeout_s=LIMIT_S)
        return self._last(done.stdout) - begun

    def _last(self, text: str) -> float:
        seen = [float(at) for at in _FIRST.findall(text)]
        if len(seen) != len(self._cluster.hosts):
            raise RuntimeError(f"{len(seen)} of {len(self._cluster.hosts)} trainers trained: {text[-500:]}")
        return max(seen)
