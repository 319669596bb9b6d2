# SPDX-License-Identifier: Apache-2.0
"""What the job makes of a node that fails: no phase may wait for it without end, or take it for what it is not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from paddle_cluster.connection.bootstrap import Bootstrap
from paddle_cluster.connection.link import Link, LinkLost
from paddle_cluster.engines.local import LocalStream
from paddle_cluster.errors import ProtocolError
from paddle_cluster.job.starter import Starter
from paddle_cluster.job.watch import are_idle, silence
from paddle_cluster.nodes.connector import Connected
from tests.launcher.staged_job import Agent, StagedJob


@pytest.fixture
def job(tmp_path: Path) -> Iterator[StagedJob]:
    """Two nodes at the end of dispatch."""
    job = StagedJob(tmp_path, "HOSTS = ['a', 'b']\n")
    job.context.clock.enter("dispatch")
    yield job
    job.console.close()


def test_dispatch_waits_for_the_second_connection_of_a_node_that_had_everything(job: StagedJob) -> None:
    assert job.dispatch.is_over()
    job.lose(1)
    assert job.connector.asked == [1]
    assert not job.dispatch.is_over()


def test_a_node_that_cannot_fetch_ends_the_wait_for_its_trees(job: StagedJob) -> None:
    job.roster.nodes[1].delivery.forget()
    job.agents[1].say("failed", request="fetch", reason="os", detail="no inode is left")
    job.settle()
    assert job.dispatch.is_over()
    assert str(job.roster.nodes[1].delivery.error) == "b: refused fetch: no inode is left"


def test_an_agent_that_gives_up_during_dispatch_may_be_followed_by_another(job: StagedJob) -> None:
    job.agents[1].say("failed", request="", reason="abandoned", detail="the guard was killed")
    job.lose(1)
    assert job.connector.asked == [1]
    assert not job.roster.failures


def test_news_of_a_connection_that_was_given_up_long_ago_does_not_end_the_next_one(job: StagedJob) -> None:
    before = job.roster.nodes[1].link
    job.context.clock.enter("stop")
    job.context.stopping = True
    now = cast("Link", Agent(1, "b", job.events))
    job.roster.nodes[1].connected(now, job.context.plan)
    job.events.put(LinkLost(1, "the node agent does not exit", before))
    job.settle()
    assert job.roster.nodes[1].link is now


def test_what_an_agent_that_gave_up_had_stopped_says_nothing_of_the_next_one(job: StagedJob) -> None:
    record = job.roster.nodes[1]
    job.agents[1].say("stopped", procs=None, left=[[7, "sh"]], killed=0)
    job.lose(1)
    assert record.traces.stopped
    job.events.put(Connected(1, LocalStream(["sleep", "600"], Bootstrap("n", b"x"))))
    job.settle()
    assert record.link is not None
    record.link.close()
    assert (record.traces.stopped, record.traces.left) == (False, ())


def test_what_an_agent_cannot_do_while_all_is_stopped_is_no_cause(job: StagedJob) -> None:
    job.context.clock.enter("stop")
    job.context.stopping = True
    job.agents[1].say("failed", request="", reason="abandoned", detail="stopped by signal 15")
    job.settle()
    assert not job.roster.failures


STEP = {"pass_id": 0, "batch_id": 0, "cost": 1.0, "samples_per_s": 1.0, "pid": 1}


@pytest.mark.parametrize("kind", ["started", "ready", "exited"])
def test_the_end_or_start_of_a_process_that_nobody_asked_for_is_an_error_of_its_node(
    job: StagedJob, kind: str
) -> None:
    """Else a node could fill the launcher's memory with names."""
    job.agents[1].say(kind, proc="trainer-99", **STEP, code=0, signal=None, tail="")
    with pytest.raises(ProtocolError, match=f"b: cannot read its '{kind}' message"):
        job.settle()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[StagedJob]:
    """A pserver on the first of three nodes, a trainer on each."""
    job = StagedJob(tmp_path, "HOSTS = ['a', 'b', 'c']\nPSERVERS = ['a']\n")
    starter = Starter(job.context, "key")
    job.context.clock.enter("run")
    starter.start(starter.pservers())
    job.agents[0].say("ready", proc="pserver-0", endpoints=["10.0.0.1:7164"], sparse_endpoints=[])
    job.settle()
    starter.start(starter.trainers(job.context.plan))
    job.settle()
    yield job
    job.console.close()


def end(job: StagedJob, rank: int) -> None:
    job.agents[rank].say("exited", proc=f"trainer-{rank}", code=0, signal=None, tail="")
    job.settle()


def test_a_node_that_is_lost_after_its_trainer_was_done_fails_nobody(running: StagedJob) -> None:
    end(running, 1)
    running.lose(1)
    assert not running.roster.failures
    running.lose(2)
    assert [failure.node for failure in running.roster.failures] == ["c"]


def test_a_node_whose_pserver_or_output_is_needed_fails_the_job_even_if_its_trainer_was_done(
    running: StagedJob,
) -> None:
    end(running, 0)
    running.lose(0)
    assert [failure.node for failure in running.roster.failures] == ["a"]


@pytest.mark.parametrize("word", ["line", "progress"])
def test_a_job_whose_trainers_neither_write_nor_step_is_told_of_until_one_does(
    running: StagedJob, word: str
) -> None:
    now = time.monotonic()
    said, _ = silence(running.roster.trainers(), 300.0, now, now - 320.0)
    assert "completed a step in 320 s: they may be reading data" in said
    fields = {"pass_id": 0, "batch_id": 1, "cost": 1.0} if word == "progress" else {"partial": False}
    running.agents[1].say(word, proc="trainer-1", **fields)
    running.settle()
    said, last = silence(running.roster.trainers(), 300.0, now, now)
    assert said == ""
    assert last >= now
    assert "completed a step in 301 s" in silence(running.roster.trainers(), 300.0, last + 301.0, now)[0]


def test_trainers_are_idle_if_each_uses_hardly_any_cpu(running: StagedJob) -> None:
    trainers = running.roster.trainers()
    assert not are_idle(trainers)  # not measured yet
    for cpu_percent in (1.0, 90.0, 2.0):
        for number, agent in enumerate(running.agents):
            name = f"trainer-{number}"
            used = [[name, cpu_percent if number == 1 else 0.0, 100]]
            agent.say("usage", memory_bytes=1, memory_total_bytes=2, processes=used)
        running.settle()
        assert are_idle(trainers) == (cpu_percent < 50.0)


def test_a_node_may_name_thousands_of_processes_that_it_cannot_end(job: StagedJob) -> None:
    left = [[pid, "sh"] for pid in range(1, 3001)]
    job.agents[1].say("stopped", procs=None, left=left, killed=0)
    job.settle()
    assert len(job.roster.nodes[1].traces.left) == len(left)
    assert not job.roster.nodes[1].traces.unread


def test_what_a_node_had_to_say_while_it_was_cut_off_is_shown(job: StagedJob) -> None:
    lease_s = int(job.context.settings.limits.lease_s)
    for number in range(20 + lease_s):  # an agent says 20 at once, then one a second
        job.agents[1].say("notice", text=f"remark {number}")
    job.settle()
    job.console.close()
    assert [f"remark {number}\n" in job.shown.getvalue() for number in range(20 + lease_s)] == [True] * (
        20 + lease_s
    )


def test_remarks_that_come_too_fast_are_counted(job: StagedJob) -> None:
    for _ in range(1000):
        job.agents[1].say("notice", text="again")
    job.settle()
    job.console.close()
    assert "arrive too fast" in job.shown.getvalue()
