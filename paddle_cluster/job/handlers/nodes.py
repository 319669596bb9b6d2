# SPDX-License-Identifier: Apache-2.0
"""Handles node connections and messages, and nodes that fall silent or are lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from paddle_cluster.connection.link import Link, LinkBroken, LinkLost
from paddle_cluster.connection.reconnect import new_key
from paddle_cluster.control.job_record import submitter
from paddle_cluster.errors import ConnectError, DispatchError, ProtocolError
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.handlers.files import DispatchHandlers
from paddle_cluster.nodes import handshake
from paddle_cluster.nodes.connector import Connected, ConnectFailed, Reconnected, ReconnectFailed
from paddle_cluster.nodes.loop import ALARM_S
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.plan import checkpoints
from paddle_cluster.text.output_events import Noted
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import dataclass
from paddle_node.contract.facts import REPORTS
from paddle_node.contract.to_launcher import Hello, Resident

DRAIN_LIMIT_S = 86400.0  # the launcher ends the wait earlier, when the node is silent
NEWS = frozenset(
    (
        *(REPORTS.keys() - {"ready"}),
        "usage",
        "arrived",
        "line",
        "notice",
        "pong",
        "resident",
        "stalled",
        "recovered",
        "stacks",
    )
)
"""The kinds of messages that a job can do without."""

DELIVERY = frozenset(("lacking", "committed"))
"""Kinds of answers without which a node does not get its trees; the other nodes finish first."""


class NodeHandlers:
    """Handles events about the connections to nodes.

    Attributes:
        reconnecting: replaces lost connections.
    """

    def __init__(self, context: JobContext, dispatch: DispatchHandlers) -> None:
        self._context = context
        self._plan = context.plan
        self._settings = context.settings
        self._roster = context.roster
        self._console = context.console
        self._dispatch = dispatch
        self._submitter = submitter(context.roster.collected)
        self.reconnecting = ReconnectHandlers(context, self.link_lost)

    def connect(self, record: NodeRecord) -> None:
        """Start connecting to a node; the result arrives as an event."""
        record.connect(self._context.connector)
        self._context.node_state(record, "connecting")

    def connected(self, event: Connected) -> None:
        """Handle a new connection to an agent: greet the agent, and request a probe or a cleanup."""
        context = self._context
        record = self._roster.nodes[event.node_id]
        key = None if record.node.host.is_local else new_key(self._settings.limits.lease_s)
        reactor = context.connector.reactor
        record.connected(
            Link(event.node_id, record.name, event.stream, context.events, reactor, key),
            self._plan,
            pace_s=handshake.pace_s(len(self._plan.nodes)),
            umask=self._settings.cluster.job_umask,
            submitter=self._submitter,
            keep_jobs=self._settings.limits.keep_jobs,
            keeps_state=checkpoints.is_in_job_dir(self._settings),
            saved=checkpoints.saved(self._settings, self._plan.job_id),
            reconnect=None if key is None else key._asdict(),
            **self._resident(record),
        )
        if event.remark:
            context.job_log.take(Noted(f"{record.name}: {event.remark}"))
        if context.stopping:
            self.end(record)
        elif record.reports.answer is None:
            size, files = context.payload.bytes_for(record.node), context.payload.files_for(record.node)
            record.send("probe", **handshake.probe_of(self._plan, record.node, size, files))

    def end(self, record: NodeRecord, drain_s: float = DRAIN_LIMIT_S) -> None:
        """Ask a node to stop all processes, to send what they have written for at most `drain_s`, and to exit."""
        grace_s = 0.0 if self._context.forced else self._settings.limits.stop_grace_s
        record.send("bye", grace_s=grace_s, drain_s=drain_s)

    def _resident(self, record: NodeRecord) -> dict[str, Any]:
        """Return the field of `hello` for an agent that should wait on this node for the next job, if any."""
        if self._context.stopping:
            return {}
        wish = self._context.connector.engine.wish(record.node.node_id)
        return {} if wish is None else {"resident": wish}

    def resident(self, record: NodeRecord, resident: Resident) -> None:
        """Record that an agent stays on a node to wait for the next job."""
        self._context.connector.engine.offered(record.node.node_id, resident.address, resident.port)

    def connect_failed(self, event: ConnectFailed) -> None:
        """Handle a failed attempt to connect to a node: the node is considered failed."""
        record = self._roster.nodes[event.node_id]
        record.drop(event.error)
        self._context.node_state(record, "failed")
        if self._context.clock.current == "dispatch" and not self._context.stopping:
            reason = f"the connection broke, and reconnecting failed: {event.error}"
            self._dispatch.give_up(record, DispatchError(record.name, reason))

    def link_lost(self, event: LinkLost) -> None:
        """Handle a broken connection: reconnect once during dispatch; in later phases, the node has failed."""
        record = self._roster.nodes[event.node_id]
        if record.link is None or (event.link is not None and event.link is not record.link):
            return
        record.drop(ConnectError(record.name, event.reason))
        if self._context.stopping:
            return
        self._context.node_state(record, "lost")
        in_dispatch = self._context.clock.current == "dispatch"
        if in_dispatch and record.contact.attempts == 1:
            self._console.note(f"{record.name}: the connection broke ({event.reason}); reconnecting")
            record.delivery.forget()
            self.connect(record)
        elif in_dispatch:
            reason = f"the connection broke twice: {event.reason}"
            self._dispatch.give_up(record, DispatchError(record.name, reason))
        elif record.delivery.trees:
            self._lost(record, f"lost: {event.reason}")

    def hello(self, record: NodeRecord, hello: Hello) -> None:
        """Handle the agent's first frame; after an interrupted dispatch, the payload is offered again."""
        record.hello(hello)
        in_dispatch = self._context.clock.current == "dispatch"
        if in_dispatch and not self._context.stopping and record.reports.answer is not None:
            self._dispatch.offer(record)

    def unread(self, record: NodeRecord, kind: str, error: Exception) -> None:
        """Handle a malformed message: skip and count a report, with one notice; a malformed answer ends the job.

        Raises:
            ProtocolError: the job depends on such messages.
        """
        text = visible(
            f"cannot read its {kind!r} message: {str(error).removeprefix(record.name + ': '):.300}"
        )
        if kind in DELIVERY:
            self._dispatch.give_up(record, DispatchError(record.name, text))
            return
        if kind not in NEWS:
            raise ProtocolError(record.name, text)
        if record.traces.miss(kind):
            self._console.note(f"{record.name}: {text}; such messages are ignored")

    def silent(self, record: NodeRecord) -> None:
        """Report that a node has sent no message for ALARM_S seconds."""
        self._console.note(
            f"{record.name}: no message for {ALARM_S:.0f} s; considered lost after "
            f"{self._settings.limits.lease_s:g} s"
        )
        self._context.node_state(record, "silent")

    def back(self, record: NodeRecord) -> None:
        """Report that a silent node has sent a message again."""
        self._console.note(f"{record.name}: connected again")
        self._context.node_state(record, "running")

    def lease_over(self, record: NodeRecord) -> None:
        """Give up a node that sent no message for a whole lease; the node stops its own processes."""
        reason = f"no message for {self._settings.limits.lease_s:g} s"
        if not record.contact.login_s:
            reason += (
                " after the login: the node agent did not start. Check what ~/.bashrc on this node does without "
                "a terminal"
            )
        problem = self.reconnecting.give_up(record.link)
        if problem:
            reason += f"; cannot reconnect: {problem}"
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
            self._console.note(
                f"{record.name}: {what}; the trainers on this node had finished, so the job continues"
            )


PAUSE_S = 0.5  # between two attempts


@dataclass
class _Tries:
    """The attempts to reconnect a link.

    Attributes:
        broken: why the previous connection ended; empty if the node is only silent.
        problem: the error of the last attempt.
    """

    broken: str = ""
    problem: str = ""
    is_under_way: bool = False
    not_before: float = 0.0


class ReconnectHandlers:
    """The handlers that reconnect broken links. The loop's clock triggers retries, which end when the lease expires."""

    def __init__(self, context: JobContext, lost: Callable[[LinkLost], None]) -> None:
        """Initialize; `lost` is called for a link that could not be reconnected."""
        self._context = context
        self._lost = lost
        self._tries: dict[Link, _Tries] = {}

    def link_broken(self, event: LinkBroken) -> None:
        """Reconnect to an agent that may still be running after its connection ended."""
        record = self._context.roster.nodes[event.node_id]
        if record.link is event.link:
            self._tries_of(event.link).broken = event.reason
            self.doubt(record)

    def doubt(self, record: NodeRecord) -> None:
        """Handle two unanswered pings or a broken connection: repeatedly try to open a new connection."""
        link = record.link
        if link is None or not link.can_reconnect:
            return
        tries = self._tries_of(link)
        if not tries.is_under_way and time.monotonic() >= tries.not_before:
            tries.is_under_way = True
            self._context.connector.reconnect(link, record.node.host, record.node.python)

    def reconnected(self, event: Reconnected) -> None:
        """Continue the session over a new connection; messages queued in the meantime are sent next."""
        record = self._context.roster.nodes[event.node_id]
        tries = self._tries.pop(event.link, None)
        if record.link is event.link:
            why = f" ({tries.broken})" if tries is not None and tries.broken else ""
            self._context.console.note(
                f"{record.name}: the connection was lost{why}; the job continues over a new connection"
            )

    def reconnect_failed(self, event: ReconnectFailed) -> None:
        """Handle a failed attempt to reconnect."""
        record = self._context.roster.nodes[event.node_id]
        if record.link is not event.link:
            self._tries.pop(event.link, None)
            return
        tries = self._tries_of(event.link)
        tries.is_under_way = False
        tries.not_before = time.monotonic() + PAUSE_S
        tries.problem = str(event.error).removeprefix(f"{record.name}: ")
        if event.is_final:
            ended = tries.broken or "the connection ended"
            self._lost(LinkLost(event.node_id, f"{ended}; {tries.problem}", event.link))

    def give_up(self, link: Link | None) -> str:
        """Stop trying; return the error of the last attempt, or ""."""
        tries = self._tries.pop(link, None) if link is not None else None
        return tries.problem if tries is not None else ""

    def _tries_of(self, link: Link) -> _Tries:
        return self._tries.setdefault(link, _Tries())
