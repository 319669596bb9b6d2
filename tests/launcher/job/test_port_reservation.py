# SPDX-License-Identifier: Apache-2.0
"""The port of a Fluid job's pservers is reserved on all their nodes before anything starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddle_cluster.errors import PreflightError
from paddle_cluster.job.port_reservation import reserve
from paddle_cluster.job.starter import Starter
from tests.launcher.staged_job import StagedJob

CONF = "HOSTS = ['a', 'b', 'c']\nPSERVERS = ['a', 'b']\n"
Stage = Callable[..., StagedJob]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Stages a job with pservers on the first two of three nodes."""
    staged = []

    def make(*arguments: str) -> StagedJob:
        job = StagedJob(tmp_path, CONF, "--mode=fluid", *arguments)
        job.context.clock.enter("pservers")
        staged.append(job)
        return job

    yield make
    for job in staged:
        job.console.close()


def reserved(job: StagedJob, timeout_s: float = 30.0) -> int:
    return reserve(job.context.plan, job.roster, job.loop, timeout_s)


def test_one_request_is_enough_if_no_job_starts_beside_it(stage: Stage) -> None:
    job = stage()
    assert reserved(job) == 7164
    assert [agent.asked for agent in job.agents] == [[7164], [7164], []]


def test_a_port_that_one_node_refuses_is_replaced_on_all_nodes(stage: Stage) -> None:
    job = stage()
    job.agents[0].reserved = {*range(7164, 7174)}
    job.agents[1].reserved = {7164, *range(7175, 7180)}
    assert reserved(job) == 7174
    assert job.agents[0].asked == job.agents[1].asked
    starter = Starter(job.context, "key")
    starter.use_port(7174)
    assert [process.ports for process in starter.pservers()] == [(7174,), (7174,)]


@pytest.mark.parametrize(("arguments", "says"), [(("--port=7164",), ";"), ((), ", and so are its")])
def test_the_job_ends_if_no_port_can_be_reserved(arguments: tuple[str, ...], says: str, stage: Stage) -> None:
    job = stage(*arguments)
    job.agents[1].reserved = {*range(7000, 8000)}
    text = r"^root@b: port 71\d\d, chosen for the pservers, is in use by another job" + re.escape(says)
    with pytest.raises(PreflightError, match=text.replace("root@", "")):
        reserved(job)
    assert len(job.agents[0].asked) == (1 if arguments else 64)


def test_a_node_that_does_not_answer_or_is_lost_has_failed(stage: Stage) -> None:
    job = stage()
    job.agents[1].is_mute = True
    reserved(job, 0.2)
    assert [(one.node, one.what) for one in job.roster.failures] == [
        ("b", "it did not reserve port 7164 within 0.2 s")
    ]
    job = stage()
    job.agents[1].is_mute = True
    job.lose(1)
    reserved(job)
    assert ["lost" in one.what for one in job.roster.failures] == [True]
