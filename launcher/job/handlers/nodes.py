# SPDX-License-Identifier: Apache-2.0
"""What the job does when a node is connected, speaks of itself, falls silent or is lost."""

from __future__ import annotations

import time
from dataclasses import dataclass

from launcher.connection.link import Link, LinkBroken, LinkLost, MessageEvent
from launcher.connection.rejoining import new_key
from launcher.control.job_record import submitter
from launcher.errors import ConnectError, DispatchError, ProtocolError
from launcher.job.context import JobContext
from launcher.job.handlers.dispatch import DispatchHandlers
from launcher.nodes import handshake
from launcher.nodes.connector import Connected, ConnectFailed, Rejoined, RejoinFailed
from launcher.nodes.loop import ALARM_S
from launcher.nodes.node_record import NodeRecord
from launcher.plan import pserver_state
from launcher.text.wrapping import visible

NEWS = frozenset(
    (
        "progress",
        "pushes",
        "unsaved",
        "line",
        "file",
        "moved",
        "link",
        "removed",
        "notice",
        "pong",
        "stalled",
        "recovered",
        "stacks",
    )
)
"""Kinds of messages that a job can do without."""

REJOIN_PAUSE_S = 0.5  # between two tries


@dataclass
class _Rejoin:
    """The tries to give a link another connection.

    Attributes:
        broken: why the one before ended; empty while it is only silent.
        problem: what became of the last try.
    """

    broken: str = ""
    problem: str = ""
    is_under_way: bool = False
    not_before: float = 0.0


class NodeHandlers:
    """Connections and what comes of them."""

    def __init__(self, context: JobContext, dispatch: DispatchHandlers) -> None:
        self._context = context
        self._plan = context.plan
        self._settings = context.settings
        self._roster = context.roster
        self._console = context.console
        self._dispatch = dispatch
        self._unread: set[tuple[int, str]] = set()
        self._rejoins: dict[Link, _Rejoin] = {}

    def connect(self, record: NodeRecord) -> None:
        """Begin to connect to a node."""
        record.connect(self._context.connector)
        self._context.node_state(record, "connecting")

    def connected(self, event: Connected) -> None:
        """A byte stream to the agent is there: greet it, and ask what it is or have it clean up."""
        context = self._context
        record = self._roster.nodes[event.node_id]
        key = None if record.node.host.is_local else new_key(self._settings.limits.lease_s)
        reactor = context.connector.reactor
        record.connected(
            Link(event.node_id, record.name, event.stream, context.events, reactor, key),
            self._plan,
            umask=self._settings.cluster.job_umask,
            submitter=submitter(self._roster.collected),
            keep_jobs=self._settings.limits.keep_jobs,
            keeps_state=pserver_state.lies_in_job_dir(self._settings),
            rejoin=None if key is None else key.fields,
        )
        if context.stopping:
            record.send(
                "stop", procs=None, grace_s=0.0 if context.forced else self._settings.limits.stop_grace_s
            )
        elif record.said.answer is None:
            need = context.payload.bytes_for(record.node)
            record.send("probe", **handshake.probe_of(self._plan, record.node, need))

    def connect_failed(self, event: ConnectFailed) -> None:
        """There is no way to the node."""
        record = self._roster.nodes[event.node_id]
        record.drop(event.error)
        self._context.node_state(record, "failed")
        if self._context.clock.current == "dispatch" and not self._context.stopping:
            reason = f"the connection broke, and a second one failed: {event.error}"
            self._dispatch.give_up(record, DispatchError(record.name, reason))

    def link_lost(self, event: LinkLost) -> None:
        """A connection broke: once during dispatch it is made again, later the node has failed."""
        record = self._roster.nodes[event.node_id]
        if record.link is None or (event.link is not None and event.link is not record.link):
            return
        record.drop(ConnectError(record.name, event.reason))
        if self._context.stopping:
            return
        self._context.node_state(record, "lost")
        in_dispatch = self._context.clock.current == "dispatch"
        if in_dispatch and record.contact.attempts == 1:
            self._console.note(f"{record.name}: the connection broke ({event.reason}); connecting once more")
            record.delivery.forget()
            self.connect(record)
        elif in_dispatch:
            reason = f"the connection broke twice: {event.reason}"
            self._dispatch.give_up(record, DispatchError(record.name, reason))
        elif record.delivery.trees:
            self._lost(record, f"lost: {event.reason}")

    def link_broken(self, event: LinkBroken) -> None:
        """A connection ended, and the agent may live on: come back to it."""
        record = self._roster.nodes[event.node_id]
        if record.link is event.link:
            self._rejoin_of(event.link).broken = event.reason
            self.doubt(record)

    def doubt(self, record: NodeRecord) -> None:
        """Two pings without an answer, or the connection ended: try another connection beside it, again and again."""
        link = record.link
        if link is None or not link.can_rejoin:
            return
        rejoin = self._rejoin_of(link)
        if not rejoin.is_under_way and time.monotonic() >= rejoin.not_before:
            rejoin.is_under_way = True
            self._context.connector.rejoin(link, record.node.host, record.node.python)

    def rejoined(self, event: Rejoined) -> None:
        """The conversation goes on over another connection; what came meanwhile follows."""
        record = self._roster.nodes[event.node_id]
        rejoin = self._rejoins.pop(event.link, None)
        if record.link is event.link:
            why = rejoin.broken if rejoin is not None else ""
            why = f" ({why})" if why else ""
            self._console.note(f"{record.name}: its connection was lost{why}; the job goes on over a new one")

    def rejoin_failed(self, event: RejoinFailed) -> None:
        """No other connection yet."""
        record = self._roster.nodes[event.node_id]
        if record.link is not event.link:
            self._rejoins.pop(event.link, None)
            return
        rejoin = self._rejoin_of(event.link)
        rejoin.is_under_way = False
        rejoin.not_before = time.monotonic() + REJOIN_PAUSE_S
        rejoin.problem = str(event.error).removeprefix(f"{record.name}: ")
        if event.is_final:
            ended = rejoin.broken or "the connection ended"
            self.link_lost(LinkLost(event.node_id, f"{ended}; {rejoin.problem}", event.link))

    def _rejoin_of(self, link: Link) -> _Rejoin:
        return self._rejoins.setdefault(link, _Rejoin())

    def hello(self, record: NodeRecord, event: MessageEvent) -> None:
        """The agent speaks; after a broken dispatch the payload is offered again."""
        record.hello(event.fields)
        in_dispatch = self._context.clock.current == "dispatch"
        if in_dispatch and not self._context.stopping and record.said.answer is not None:
            self._dispatch.offer(record)

    def unread(self, record: NodeRecord, kind: str, error: Exception) -> None:
        """A message is not what it should be: news are left out, and told once; an answer ends the job.

        Raises:
            ProtocolError: the job waits for such messages.
        """
        text = visible(f"its {kind!r} message cannot be read: {error!s:.300}")
        if kind not in NEWS:
            raise ProtocolError(record.name, text)
        if (record.node.node_id, kind) not in self._unread:
            self._unread.add((record.node.node_id, kind))
            self._console.note(f"{record.name}: {text}; such messages are left out")

    def silent(self, record: NodeRecord) -> None:
        """No word for ALARM_S: tell it."""
        self._console.note(
            f"{record.name}: no word for {ALARM_S:.0f} s; lost after {self._settings.limits.lease_s:g} s"
        )
        self._context.node_state(record, "silent")

    def back(self, record: NodeRecord) -> None:
        """A silent node spoke again."""
        self._console.note(f"{record.name}: is back")
        self._context.node_state(record, "running")

    def lease_over(self, record: NodeRecord) -> None:
        """No word for a whole lease: the node is lost, and stops its processes by itself."""
        reason = f"no word for {self._settings.limits.lease_s:g} s"
        if not record.contact.login_s:
            reason += (
                " after the login: no node agent started; see what ~/.bashrc does there without a terminal"
            )
        rejoin = self._rejoins.pop(record.link, None) if record.link is not None else None
        if rejoin is not None and rejoin.problem:
            reason += f"; a new connection: {rejoin.problem}"
        record.drop(ConnectError(record.name, reason))
        if self._context.stopping:
            return
        if self._context.clock.current == "dispatch":
            self._dispatch.give_up(record, DispatchError(record.name, reason))
        else:
            self._lost(record, reason)

    def _lost(self, record: NodeRecord, what: str) -> None:
        self._roster.fail_node(record, what)
        if self._roster.is_done_with(record):
            self._console.note(f"{record.name}: {what}; its trainers were done, the job goes on")
