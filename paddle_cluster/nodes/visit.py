# SPDX-License-Identifier: Apache-2.0
"""Examines the nodes of a plan without changing anything on them: agents start, answer, and exit.

Connections are made as for a job. Running a job on the nodes is not part of this module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from paddle_cluster.connection.link import EventQueue, Link, LinkLost
from paddle_cluster.engines.engine import entry
from paddle_cluster.errors import ConnectError, ProtocolError
from paddle_cluster.nodes import handshake
from paddle_cluster.nodes.connector import Connected, ConnectFailed, Connector, make_room
from paddle_cluster.nodes.examination import Examination, Examined
from paddle_cluster.nodes.loop import Handlers, Loop
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan.plan import Plan
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.to_launcher import Failed

LEAVE_S = 2.0


def examine(plan: Plan, enter: Callable[[str], None]) -> Examined:
    """Examine the nodes of a plan, then release the agents, even after an error.

    Args:
        enter: called with the name of each phase.

    Raises:
        ProtocolError: a node violates the protocol.
        UsageError: the limit on open files is too low for this number of nodes.
    """
    make_room(len(plan.nodes))
    visit = _Visit(plan)
    try:
        return Examination(plan, visit.roster, visit.loop, visit.connect, enter).run()
    finally:
        visit.leave()


class _Visit:
    """The connections to the nodes, and the handlers of their events."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._events = EventQueue()
        engine = entry(plan.settings).of(plan, is_job=False)
        engine.check()
        self._connector = Connector(self._events, engine)
        self.roster = Roster({node.node_id: NodeRecord(node) for node in plan.nodes}, Path())
        self.loop = Loop(self._events, self.roster, plan.settings.limits.lease_s, self._handlers())

    def connect(self, record: NodeRecord) -> None:
        """Begin to connect to a node."""
        record.connect(self._connector)

    def leave(self) -> None:
        """Release the agents; agents that do not confirm in time exit when the connection ends."""
        self._connector.close()
        for record in self.roster.live():
            record.send("bye", grace_s=0.0, drain_s=0.0)
        with contextlib.suppress(ProtocolError):  # the conclusion is already final
            self.loop.until(lambda: not self.roster.live(), LEAVE_S)
        for record in self.roster.live():
            record.drop(None)
        self._connector.join(LEAVE_S)

    def _handlers(self) -> Handlers:
        return Handlers(
            events={
                Connected: self._connected,
                ConnectFailed: self._connect_failed,
                LinkLost: self._link_lost,
            },
            messages={
                "hello": NodeRecord.hello,
                "pong": NodeRecord.pong,
                "probed": NodeRecord.probed,
                "reached": lambda record, reached: record.reports.reached(reached),
                "failed": _failed,
                "goodbye": lambda record, _: record.drop(None),
            },
            silence=lambda record: None,
            back=lambda record: None,
            lease=self._lease_over,
            unread=_unread,
        )

    def _connected(self, event: Connected) -> None:
        record = self.roster.nodes[event.node_id]
        link = Link(event.node_id, record.name, event.stream, self._events, self._connector.reactor)
        record.connected(link, self._plan)
        record.send("probe", **handshake.probe_of(self._plan, record.node, gpus=True))

    def _connect_failed(self, event: ConnectFailed) -> None:
        self.roster.nodes[event.node_id].drop(event.error)

    def _link_lost(self, event: LinkLost) -> None:
        record = self.roster.nodes[event.node_id]
        if record.link is not None:
            record.drop(ConnectError(record.name, event.reason))

    def _lease_over(self, record: NodeRecord) -> None:
        record.drop(ConnectError(record.name, f"no message for {self._plan.settings.limits.lease_s:g} s"))


def _failed(record: NodeRecord, failed: Failed) -> None:
    record.drop(ConnectError(record.name, f"refused {failed.request}: {failed.detail}"))


def _unread(record: NodeRecord, kind: str, error: Exception) -> None:
    record.drop(ConnectError(record.name, visible(f"cannot read its {kind!r} message: {error!s:.300}")))
