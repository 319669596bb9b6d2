# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch script over real hosts; without the `cluster` mark, for PyTorch alone may be missing."""

from __future__ import annotations

import importlib.util
import re
import shutil

import pytest

from tests.cluster.hosts import ROOT, Cluster, missing_tools
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle

LACKING = (
    missing_tools()
    if importlib.util.find_spec("torch")
    else "torch is not installed: it is gigabytes, too much for the lock"
)


@pytest.mark.skipif(bool(LACKING), reason=LACKING or "")
@pytest.mark.timeout(300)
def test_a_plain_ddp_script_trains_on_three_hosts(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    shutil.copy(ROOT / "examples" / "torch_ddp.py", job.workspace)
    launch = job.start("--entry=torch_ddp.py", "--mode=collective", "--nproc_per_node=2")
    end = oracle.check(launch, 0, within_s=240)
    found = re.findall(r"process \d: test accuracy ([\d.]+), model (\w+)", end.output)
    assert len(found) == 6
    assert len({model for _, model in found}) == 1
    assert all(float(accuracy) > 0.95 for accuracy, _ in found)
