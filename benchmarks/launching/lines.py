# SPDX-License-Identifier: Apache-2.0
"""Measures the time of a line from `print` on a host to a reader of the launcher's output through a pipe."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.launching.our_jobs import PATIENCE
from benchmarks.launching.rivals import Rivals
from benchmarks.launching.run import Run
from tests.cluster.host import interpreter
from tests.cluster.hosts import Cluster

_AT = re.compile(rb"AT (\d+\.\d+)")
# Ten lines a second, not synchronized with anything.
_SCRIPT = """\
import random, sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(0.1 * random.uniform(0.8, 1.2))
    print(f"AT {time.monotonic():.6f}", flush=True)
"""


def by_ours(cluster: Cluster, run: Run, seconds: float) -> float:
    """Return the milliseconds of the median line through `paddle.py`."""
    workspace = run.workspace("lines", _SCRIPT)
    conf = cluster.write_conf(run.scratch / "lines.py", **PATIENCE)
    argv = [sys.executable, str(run.root / "paddle.py"), f"--conf={conf}", "--mode=collective"]
    return _middle(cluster, [*argv, f"--job_dispatch_package={workspace}", str(seconds)])


def by_ssh(cluster: Cluster, run: Run, seconds: float) -> float:
    """Return the milliseconds of the median line through one `ssh` per host."""
    for host in cluster.hosts:
        (host.files.fs / "root/lines.py").write_text(_SCRIPT)
    return _middle(cluster, Rivals(cluster).xargs_ssh(f"{interpreter()} /root/lines.py {seconds}"))


def _middle(cluster: Cluster, argv: Sequence[str]) -> float:
    took: list[float] = []
    said = b""
    with cluster.popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            now = time.monotonic()
            said = line
            if found := _AT.search(line):
                took.append((now - float(found.group(1))) * 1e3)
    if process.returncode != 0 or not took:
        raise RuntimeError(f"{argv[0]} ended with {process.returncode}: {said.decode(errors='replace')}")
    return statistics.median(took)
