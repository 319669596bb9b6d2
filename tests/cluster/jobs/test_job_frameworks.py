# SPDX-License-Identifier: Apache-2.0
"""Plain scripts of other frameworks over hosts whose own names lead nowhere, as on a Debian just installed.

Without the `cluster` mark, for each of the frameworks may be missing: they are gigabytes, too much for the lock.
"""

from __future__ import annotations

import importlib.util
import re
import shutil

import pytest

from tests.cluster.hosts import ROOT, Cluster, missing_tools
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.own_names import names_of_debian

pytestmark = pytest.mark.timeout(300)


def needs(module: str) -> pytest.MarkDecorator:
    """Skip where a framework is missing, or the means for hosts."""
    lacking = missing_tools() if importlib.util.find_spec(module) else f"{module} is not installed"
    return pytest.mark.skipif(bool(lacking), reason=lacking or "")


def output_of(example: str, cluster: Cluster, job: JobRunner, oracle: Oracle) -> str:
    """What six processes of an example on three hosts print."""
    shutil.copy(ROOT / "examples" / example, job.workspace)
    with names_of_debian(cluster):
        launch = job.start(f"--entry={example}", "--mode=collective", "--nproc_per_node=2")
        return oracle.check(launch, 0, within_s=240).output


@needs("torch")
def test_torch_learns_on_three_hosts(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    output = output_of("torch_ddp.py", cluster, job, oracle)
    found = re.findall(r"process \d: test accuracy ([\d.]+), model (\w+)", output)
    assert len(found) == 6
    assert len({model for _, model in found}) == 1
    assert all(float(accuracy) > 0.95 for accuracy, _ in found)


@needs("jax")
def test_jax_finds_its_processes_by_itself(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    output = output_of("jax_allreduce.py", cluster, job, oracle)
    assert set(re.findall(r"process (\d) of 6, 1 of 6 devices", output)) == set("012345")
    found = re.findall(r"process \d: weights (.+)", output)
    assert len(found) == 6
    assert [round(float(word)) for word in found[0].split()] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(set(found)) == 1


@needs("xgboost")
def test_xgboost_grows_one_model_on_three_hosts(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    output = output_of("xgboost_collective.py", cluster, job, oracle)
    assert {(rank, given) for rank, given in re.findall(r"process (\d) of 6, RANK (\d)", output)} == {
        (str(rank), str(rank)) for rank in range(6)
    }
    found = re.findall(r"process \d: test accuracy ([\d.]+), model (\w+)", output)
    assert len(found) == 6
    assert len(set(found)) == 1
    assert float(found[0][0]) > 0.95
