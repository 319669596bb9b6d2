# SPDX-License-Identifier: Apache-2.0
"""Going on after failures that come one after the other: whoever remains is started, and nobody else."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.arguments import parse
from launcher.console import Console
from launcher.dispatch import RUNTIME, WORKSPACE
from launcher.events import Events
from launcher.link import Link, LinkLost, MessageEvent
from launcher.loop import Loop
from launcher.phases import PhaseClock
from launcher.plan import build
from launcher.reactions import handlers
from launcher.reactions_dispatch import DispatchReactions
from launcher.reactions_nodes import NodeReactions
from launcher.reactions_processes import ProcessReactions
from launcher.recovery import Recovery
from launcher.roster import NodeRecord, ProcessState, Roster
from launcher.settings import resolve
from launcher.situation import Situation
from launcher.starter import Starter

CONF = "HOSTS = ['a', 'b', 'c', 'd']\nRESTART_BACKOFF_S = 0\n"


class Agent:
    """A node that does at once what it is told, in place of the link to it."""

    bytes_sent = 0

    def __init__(self, node_id: int, events: Events) -> None:
        self.node_id = node_id
        self.started: list[str] = []
        self._events = events

    def send(self, kind: str, **fields: Any) -> None:
        if kind == "start":
            self.started.append(fields["proc"])
            self.say("started", proc=fields["proc"], pid=1)
        elif kind == "stop":
            self.say("stopped", procs=fields["procs"], left=[], killed=0)

    def say(self, kind: str, **fields: Any) -> None:
        self._events.put(MessageEvent(self.node_id, kind, fields, b""))

    def close(self) -> None:
        pass


class Job:
    """Four trainers, one a node, in the middle of a collective job."""

    def __init__(self, directory: Path) -> None:
        (directory / "conf.py").write_text(CONF)
        arguments = ["--mode=collective", "--min_trainers=1", "--max_restarts=2", "-p", "ws"]
        plan = build(resolve(parse([f"--conf={directory / 'conf.py'}", *arguments]), {}), "JOB1")
        self.events = Events()
        self.roster = Roster({node.node_id: NodeRecord(node) for node in plan.nodes}, directory)
        self.agents = [Agent(node.node_id, self.events) for node in plan.nodes]
        for record, agent in zip(self.roster.all(), self.agents, strict=True):
            record.link = cast("Link", agent)
            record.hear()
            record.probed = {"address": f"10.0.0.{agent.node_id + 1}", "cpus": 1}
            record.trees = {WORKSPACE: "/job", RUNTIME: "/runtime"}
        self.console = Console(io.StringIO())
        unused = cast("Any", None)
        situation = Situation(
            plan, unused, self.roster, unused, self.events, unused, self.console, PhaseClock()
        )
        dispatch = DispatchReactions(situation)
        nodes, processes = NodeReactions(situation, dispatch), ProcessReactions(situation, dispatch)
        self.loop = Loop(self.events, self.roster, 30.0, handlers(situation, nodes, dispatch, processes))
        starter = Starter(situation, "key")
        self.recovery = Recovery(situation, self.loop, starter)
        starter.start(starter.trainers(plan))
        self.settle()

    def settle(self) -> None:
        """Handle what came."""
        self.loop.until(self.events.empty, 5)

    def lose(self, node_id: int) -> None:
        """The connection to a node breaks."""
        self.events.put(LinkLost(node_id, "no power"))
        self.settle()

    def fail_silent(self, node_id: int) -> None:
        """A node answered nothing while others failed; its connection is still there."""
        self.roster.fail_node(self.roster.nodes[node_id], "no word for 10 s")

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
