# SPDX-License-Identifier: Apache-2.0
"""The command of 2016 on real hosts: a configuration, three trainers that are `paddle train`, two pservers."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

CONFIGURATION = """
import os

from paddle.trainer_config_helpers import *

define_py_data_sources2([os.environ['PADDLE_TRAINER_ID']], ['test'], 'words', 'process')
settings(batch_size=8, learning_rate=2e-2, learning_method=AdamOptimizer())
word = data_layer(name='word', size=20)
rows = embedding_layer(input=word, size=8)
hidden = pooling_layer(input=simple_lstm(input=rows, size=8), pooling_type=MaxPooling())
output = fc_layer(input=hidden, size=2, act=SoftmaxActivation())
outputs(classification_cost(input=output, label=data_layer(name='label', size=2)))
"""
PROVIDER = """
import random

from paddle.trainer.PyDataProvider2 import *

@provider({'word': integer_value_sequence(20), 'label': integer_value(2)})
def process(settings, part):
    draw = random.Random(part)
    for number in range(64):
        words = draw.choices(range(18), k=draw.randint(2, 5))
        words.insert(draw.randrange(len(words)), 18 + number % 2)
        yield {'word': words, 'label': number % 2}
"""
OF_2016 = (
    "--dot_period=10", "--ports_num_for_sparse=2", "--log_period=5", "--num_passes=4", "--trainer_count=1",
    "--saving_period=1", "--local=0", "--config=./trainer_config.py", "--save_dir=./output", "--use_gpu=0",
)  # fmt: skip


@scenarios.add
def a_configuration_trains_as_run_sh_of_2016_asks(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    shutil.rmtree(job.workspace)
    job.workspace.mkdir()
    (job.workspace / "trainer_config.py").write_text(CONFIGURATION)
    (job.workspace / "words.py").write_text(PROVIDER)
    job.conf_tail = "PSERVERS = [0, 1]\n"
    launch = job.start(*OF_2016)
    oracle.check(launch, 0, r"2 pservers ready", within_s=60)
    for rank in range(3):
        log = job.log(rank, "paddle_trainer.INFO")
        costs = [float(cost) for cost in re.findall(r" Pass=\d .*AvgCost=(\S+)", log)]
        assert len(costs) == 4
        assert costs[-1] < 0.5 * costs[0]
    shown = re.findall(r"\[trainer (\d) .*Pass=\d .*AvgCost=", job.log(0, "../job.log"))
    assert set(shown) == {"0"}
    saved = sorted(path.name for path in (job.workspace / "output").iterdir())
    assert saved == [f"pass-{number:05d}" for number in range(4)]
    assert (job.workspace / "output/pass-00003/done").is_file()


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
