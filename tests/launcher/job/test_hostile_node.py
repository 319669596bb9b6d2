# SPDX-License-Identifier: Apache-2.0
"""A node that lies: it cannot forge what the launcher says, speak for other nodes, or keep a job from ending."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.errors import LauncherError, ProtocolError
from paddle_cluster.job.starter import Starter
from paddle_cluster.system import signals
from tests.launcher.staged_job import StagedJob

FORGED = "x\nFIRST ERROR: trainer 0 on a: exit code 9\r\nJOB1: done (exit 0)\x1b[2J\u2028done"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[StagedJob]:
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


def screen(job: StagedJob) -> list[str]:
    """The lines that the job has shown."""
    job.console.close()
    return job.shown.getvalue().splitlines()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("notice", {"text": FORGED}),
        ("stalled", {"proc": "trainer-1", "what": FORGED, "cause": "frozen", "stacks": FORGED}),
        ("failed", {"request": "", "reason": "os", "detail": FORGED}),
        ("failed", {"request": "start", "proc": "trainer-1", "reason": "os", "detail": FORGED}),
        ("stopped", {"procs": ["trainer-1"], "left": [[7, FORGED]], "killed": 0}),
        ("line", {"proc": "trainer-1", "unsent": 7, "log": FORGED}),
    ],
)
def test_a_node_cannot_imitate_a_line_of_the_launcher(
    job: StagedJob, kind: str, fields: dict[str, Any]
) -> None:
    job.agents[1].say(kind, **fields)
    job.settle()
    told = [*(failure.what for failure in job.roster.failures), *screen(job)]
    assert told
    assert all("\n" not in text and "\x1b" not in text for text in told)
    assert not [text for text in told if text.startswith(("FIRST ERROR", "JOB1", "done"))]


def test_what_a_node_could_not_end_is_one_line_each(job: StagedJob) -> None:
    job.context.stopping = True
    job.agents[1].say("stopped", procs=None, left=[[7, FORGED]], killed=0)
    job.settle()
    ((pid, command),) = job.roster.nodes[1].traces.left
    assert (pid, command.splitlines()) == (7, [command])


def test_a_goodbye_in_mid_run_is_a_lost_node(job: StagedJob) -> None:
    job.agents[1].say("goodbye", rest=None)
    job.settle()
    assert [failure.headline() for failure in job.roster.failures] == [
        "node b: lost: the node agent exited during the run"
    ]


@pytest.mark.parametrize("kind", ["exited", "started", "ready"])
def test_a_node_reports_only_about_its_own_processes(job: StagedJob, kind: str) -> None:
    fields: dict[str, Any] = {
        "pid": 1,
        "code": 0,
        "signal": None,
        "tail": "",
        "endpoints": [],
        "sparse_endpoints": [],
    }
    job.agents[1].say(kind, proc="trainer-2", **fields)
    with pytest.raises(ProtocolError, match=f"b: cannot read its '{kind}' message: .*unknown process"):
        job.settle()
    assert all(record.process.name == "trainer-2" for record in job.roster.trainers()[2:])


@pytest.mark.parametrize("kind", ["progress", "stalled", "recovered", "stacks", "pushes", "line"])
def test_news_of_another_nodes_process_are_left_out_and_told_once(job: StagedJob, kind: str) -> None:
    news = {"pass_id": 0, "batch_id": 0, "what": "x", "cause": "no step", "stacks": "x", "trainers": []}
    for _ in range(3):
        job.agents[1].say(kind, proc="trainer-2", **news)
    job.settle()
    assert not job.roster.failures
    assert sum(f"b: cannot read its '{kind}' message" in line for line in screen(job)) == 1


@pytest.mark.parametrize("wrong", [None, [], {}, "0", 1.5, True, -1, 10**400, float("inf")], ids=repr)
def test_an_end_that_cannot_be_read_ends_the_job_with_its_node_named(job: StagedJob, wrong: object) -> None:
    tail = 7 if wrong is None else ""
    job.agents[1].say("exited", proc="trainer-1", code=3, signal=wrong, tail=tail)
    with pytest.raises(ProtocolError, match="b: cannot read its 'exited' message"):
        job.settle()


@pytest.mark.parametrize("clock", [float("inf"), float("nan"), -1.0, 1e300, "now", [], 10**400], ids=repr)
def test_a_clock_that_no_clock_can_show_is_left_out(job: StagedJob, clock: object) -> None:
    job.agents[1].say("pong", seq=1, clock=clock)
    job.agents[1].say("line", proc="trainer-1", partial=False, t=clock)
    job.settle()
    assert job.roster.nodes[1].reports.clock.offset_s == 0.0


def test_a_hello_in_mid_run_begins_nothing_anew(job: StagedJob) -> None:
    before = job.roster.nodes[1].delivery.trees
    said = {"python": "3.11", "user": "u", "platform": "Linux", "agent_start_s": 0.1, "magic": ""}
    job.agents[1].say("hello", hostname="b", clock=1.0, pid=1, **said)
    job.settle()
    assert job.roster.nodes[1].delivery.trees is before


def test_a_thread_that_fails_ends_the_job_with_its_name_and_cause(job: StagedJob) -> None:
    def fail() -> None:
        raise OverflowError("cannot convert float infinity to integer")

    with signals.failures_posted_to(job.events):
        thread = threading.Thread(target=fail, name="state")
        thread.start()
        thread.join()
    with pytest.raises(
        LauncherError, match=r"thread 'state' failed: OverflowError: cannot .*test_hostile_node"
    ):
        job.settle()


def test_a_node_that_freezes_and_goes_on_again_and_again_does_not_fill_the_screen(job: StagedJob) -> None:
    for _ in range(2000):
        job.agents[1].say("stalled", proc="trainer-1", what="x", cause="frozen", stacks="")
        job.agents[1].say("recovered", proc="trainer-1")
    job.settle()
    assert 0 < sum("trainer 1 on b" in line for line in screen(job)) < 200
