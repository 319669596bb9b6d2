# SPDX-License-Identifier: Apache-2.0
"""Going on after failures that come one after the other: whoever remains is started, and nobody else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.job.recovery import KILL_S, Recovery
from paddle_cluster.job.starter import Starter
from paddle_cluster.nodes.roster import ProcessState
from tests.launcher.staged_job import StagedJob

CONF = "HOSTS = ['a', 'b', 'c', 'd']\nRESTART_BACKOFF_S = 0\n"


class Job(StagedJob):
    """Four trainers, one a node, in the middle of a collective job."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, CONF, "--mode=collective", "--min_trainers=1", "--max_restarts=2")
        starter = Starter(self.context, "key")
        self.recovery = Recovery(self.context, self.loop, starter)
        starter.start(starter.trainers(self.context.plan))
        self.settle()

    def fail_silent(self, node_id: int) -> None:
        """A node answered nothing while others failed; its connection is still there."""
        self.roster.fail_node(self.roster.nodes[node_id], "no message for 10 s")

    def finish(self, node_id: int, is_ending: bool = False) -> None:
        """The trainer of a node exits with 0, by itself or because the launcher ends it."""
        self.agents[node_id].say("exited", proc=f"trainer-{node_id}", code=0, signal=None, tail="")
        self.settle()
        assert bool(self.roster.processes[f"trainer-{node_id}"].left_at) != is_ending

    def restart(self) -> dict[str, int]:
        """Start what waits for it; node ids of the trainers that run then."""
        for agent in self.agents:
            agent.started.clear()
        self.recovery.start_due()
        self.settle()
        assert all(one.state is ProcessState.RUNNING for one in self.roster.trainers())
        return {name: agent.node_id for agent in self.agents for name in agent.started}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.console.close()


def test_nodes_that_are_lost_one_after_the_other_are_both_left_out(job: Job) -> None:
    job.lose(1)
    job.recovery.absorb()
    job.lose(2)  # before those that remain were started again
    job.recovery.absorb()
    assert job.restart() == {"trainer-0": 0, "trainer-1": 3}


def test_a_trainer_that_has_finished_is_not_started_again(job: Job) -> None:
    job.finish(0)
    job.lose(1)
    job.recovery.absorb()
    assert "restarting all 2 unfinished trainers in" in job.roster.incidents[-1].text
    job.finish(2, is_ending=True)
    assert job.restart() == {"trainer-0": 2, "trainer-1": 3}


def test_a_finished_node_that_is_lost_changes_no_restart_that_is_due(job: Job) -> None:
    for node_id in (0, 2):
        job.finish(node_id)
    job.lose(1)
    job.recovery.absorb()
    assert "restarting 1 unfinished trainer in" in job.roster.incidents[-1].text
    job.lose(0)
    job.recovery.absorb()
    assert job.restart() == {"trainer-0": 3}


def test_nothing_is_started_again_if_all_trainers_that_remain_have_finished(job: Job) -> None:
    for node_id in (0, 2, 3):
        job.finish(node_id)
    job.lose(1)
    job.recovery.absorb()
    assert job.recovery.is_idle()
    assert all(one.state is ProcessState.EXITED for one in job.roster.trainers())


def test_nobody_waits_for_the_answer_of_a_node_that_is_left_out(job: Job) -> None:
    job.agents[1].is_mute = True
    job.fail_silent(1)
    began = time.monotonic()
    job.recovery.absorb()
    assert time.monotonic() - began < KILL_S
    assert len(job.restart()) == 3


def test_a_left_out_node_whose_connection_breaks_later_restarts_nobody(job: Job) -> None:
    job.fail_silent(1)
    job.recovery.absorb()
    assert job.restart() == {"trainer-0": 0, "trainer-1": 2, "trainer-2": 3}
    job.lose(1)
    assert not job.roster.failures


def test_a_left_out_node_that_comes_back_may_say_what_it_did_meanwhile(job: Job) -> None:
    job.fail_silent(3)
    job.recovery.absorb()
    assert len(job.restart()) == 3
    job.agents[3].say("started", proc="trainer-3", pid=4711)
    job.settle()
    assert not job.roster.failures
