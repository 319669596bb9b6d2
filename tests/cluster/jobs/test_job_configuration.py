# SPDX-License-Identifier: Apache-2.0
"""The command of 2016 on real hosts: a configuration, three trainers that are `paddle train`, two pservers."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

CONFIGURATION = Path(__file__).with_name("workspaces") / "configuration"
OF_2016 = (
    "--dot_period=10", "--ports_num_for_sparse=2", "--log_period=5", "--num_passes=4", "--trainer_count=1",
    "--saving_period=1", "--local=0", "--config=./trainer_config.py", "--save_dir=./output", "--use_gpu=0",
)  # fmt: skip


@scenarios.add
def a_configuration_trains_as_run_sh_of_2016_asks(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    shutil.rmtree(job.workspace)
    shutil.copytree(CONFIGURATION, job.workspace)
    job.conf_tail = "PSERVERS = [0, 1]\n"
    launch = job.start(*OF_2016)
    oracle.check(launch, 0, r"2 pservers ready", within_s=60)
    for rank in range(3):
        log = job.log(rank, "paddle_trainer.INFO")
        costs = [float(cost) for cost in re.findall(r" Pass=\d .*AvgCost=(\S+)", log)]
        assert len(costs) == 4
        assert costs[-1] < 0.5 * costs[0]
    saved = sorted(path.name for path in (job.workspace / "output").iterdir())
    assert saved == [f"pass-{number:05d}" for number in range(4)]
    assert (job.workspace / "output/pass-00003/done").is_file()


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
