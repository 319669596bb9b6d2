# SPDX-License-Identifier: Apache-2.0
"""A job whose nodes are played: everything of the launcher is real but the connector and the links."""

from __future__ import annotations

import io
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from paddle_cluster.config.arguments import parse
from paddle_cluster.config.resolve import resolve
from paddle_cluster.connection.link import EventQueue, Link, LinkLost, heard
from paddle_cluster.connection.reactor import Reactor
from paddle_cluster.engines.local import LocalEngine
from paddle_cluster.files.collector_thread import CollectorThread
from paddle_cluster.files.dispatch import RUNTIME, WORKSPACE, Delivery, Dispatch, DispatchState
from paddle_cluster.files.payload import Payload
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.handlers.files import DispatchHandlers
from paddle_cluster.job.handlers.nodes import NodeHandlers
from paddle_cluster.job.handlers.processes import ProcessHandlers
from paddle_cluster.job.handlers.table import handlers
from paddle_cluster.nodes.connector import Connector
from paddle_cluster.nodes.handshake import Introduction
from paddle_cluster.nodes.loop import Loop
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.phases import PhaseClock
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan.plan import build
from paddle_cluster.screen.console import Console
from paddle_node.contract.to_launcher import Probed

JOB = "JOB20260102030405-a1b2c3"
_TREES = {WORKSPACE: "/job", RUNTIME: "/runtime"}


class Agent:
    """A node that does at once what it is told, in place of the link to it.

    Attributes:
        list: what it lists in the end.
        reserved: ports that other jobs reserved on the node.
        asked: ports that it was to reserve.
    """

    key = None
    can_reconnect = False
    is_broken = False
    read_at = 0.0

    def __init__(self, node_id: int, name: str, events: EventQueue) -> None:
        self.node_id = node_id
        self.name = name
        self.started: list[str] = []
        self.is_mute = False
        self.list = b"[]"
        self.reserved: set[int] = set()
        self.asked: list[int] = []
        self._events = events

    def send(self, kind: str, _body: bytes = b"", **fields: Any) -> None:
        if kind == "start":
            self.started.append(fields["proc"])
            self.say("started", proc=fields["proc"], pid=1)
        elif kind == "stop":
            self.say("stopped", procs=fields["procs"], left=[], killed=0)
        elif kind == "reserve":
            self.asked.append(fields["port"])
            self.say("reserved", port=fields["port"], owner="another job" * (fields["port"] in self.reserved))
        elif kind == "bye":
            self._events.put(heard(self.node_id, self.name, "listed", {"last": True}, self.list))
        elif kind == "verified" and _body == b"[]":
            self.say("goodbye", rest=None)

    def say(self, kind: str, **fields: Any) -> None:
        if self.is_mute:
            return
        self._events.put(heard(self.node_id, self.name, kind, fields))

    def close(self) -> None:
        pass


class Engine:
    """Notes to which nodes it shall connect."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.reactor = Reactor()
        self.engine = LocalEngine()

    def connect(self, node_id: int, *where: object) -> float:
        self.asked.append(node_id)
        return time.monotonic()

    def close(self) -> None:
        pass

    def join(self, _timeout_s: float) -> str:
        return ""


class StagedJob:
    """A job whose nodes have been examined, and have all trees.

    Args:
        conf: text of its conf.py.
        collecting: what nodes send is collected below the directory.
    """

    def __init__(self, directory: Path, conf: str, *arguments: str, collecting: bool = False) -> None:
        (directory / "conf.py").write_text(conf)
        plan = build(resolve(parse([f"--conf={directory / 'conf.py'}", "-p", "ws", *arguments]), {}), JOB)
        self.events = EventQueue()
        self.roster = Roster({node.node_id: NodeRecord(node) for node in plan.nodes}, directory)
        self.agents = [Agent(node.node_id, node.label, self.events) for node in plan.nodes]
        for record, agent in zip(self.roster.all(), self.agents, strict=True):
            record.contact.begin(time.monotonic())
            record.connected(cast("Link", agent), plan)
            record.reports = Introduction(answer=Probed(address=f"10.0.0.{agent.node_id + 1}"))
            dispatches = {tree: Dispatch(cast("Link", agent), None, tree=tree, dest="") for tree in _TREES}
            for dispatch in dispatches.values():
                dispatch.state = DispatchState.DONE
            record.delivery = Delivery(dispatches, dict(_TREES))
        self.connector = Engine()
        self.shown = io.StringIO()
        self.console = Console(self.shown)
        unused = cast("Any", None)
        self.context = JobContext(
            plan,
            cast("Payload", SimpleNamespace(warning=lambda node, dispatch: "")),
            self.roster,
            cast("Connector", self.connector),
            self.events,
            CollectorThread(directory, self.events) if collecting else unused,
            self.console,
            PhaseClock(),
            unused,
        )
        self.dispatch = DispatchHandlers(self.context)
        self.nodes = nodes = NodeHandlers(self.context, self.dispatch)
        processes = ProcessHandlers(self.context, self.dispatch)
        table = handlers(self.context, nodes, self.dispatch, processes)
        self.loop = Loop(self.events, self.roster, 30.0, table)

    def settle(self) -> None:
        """Handle what came."""
        assert self.loop.until(self.events.empty, 60)

    def lose(self, node_id: int) -> None:
        """The connection to a node breaks."""
        self.events.put(LinkLost(node_id, "no power"))
        self.settle()
