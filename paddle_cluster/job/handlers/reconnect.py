# SPDX-License-Identifier: Apache-2.0
"""Reconnecting: what the job does about a connection that was lost while its agent may live on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from paddle_cluster.connection.link import Link, LinkBroken, LinkLost
from paddle_cluster.job.context import JobContext
from paddle_cluster.nodes.connector import Reconnected, ReconnectFailed
from paddle_cluster.nodes.node_record import NodeRecord

PAUSE_S = 0.5  # between two tries


@dataclass
class _Tries:
    """The tries to give a link another connection.

    Attributes:
        broken: why the one before ended; empty while it is only silent.
        problem: what became of the last try.
    """

    broken: str = ""
    problem: str = ""
    is_under_way: bool = False
    not_before: float = 0.0


class ReconnectHandlers:
    """One try after the other, for each link that wants it; the loop's clock calls again until the lease is over."""

    def __init__(self, context: JobContext, lost: Callable[[LinkLost], None]) -> None:
        """Without any; `lost` is told of a link that gets no connection any more."""
        self._context = context
        self._lost = lost
        self._tries: dict[Link, _Tries] = {}

    def link_broken(self, event: LinkBroken) -> None:
        """A connection ended, and the agent may live on: come back to it."""
        record = self._context.roster.nodes[event.node_id]
        if record.link is event.link:
            self._tries_of(event.link).broken = event.reason
            self.doubt(record)

    def doubt(self, record: NodeRecord) -> None:
        """Two pings without an answer, or the connection ended: try another connection beside it, again and again."""
        link = record.link
        if link is None or not link.can_reconnect:
            return
        tries = self._tries_of(link)
        if not tries.is_under_way and time.monotonic() >= tries.not_before:
            tries.is_under_way = True
            self._context.connector.reconnect(link, record.node.host, record.node.python)

    def reconnected(self, event: Reconnected) -> None:
        """The conversation goes on over another connection; what came meanwhile follows."""
        record = self._context.roster.nodes[event.node_id]
        tries = self._tries.pop(event.link, None)
        if record.link is event.link:
            why = f" ({tries.broken})" if tries is not None and tries.broken else ""
            self._context.console.note(
                f"{record.name}: its connection was lost{why}; the job continues over a new one"
            )

    def reconnect_failed(self, event: ReconnectFailed) -> None:
        """No other connection yet."""
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
        """Try no more; what became of the last try, or nothing."""
        tries = self._tries.pop(link, None) if link is not None else None
        return tries.problem if tries is not None else ""

    def _tries_of(self, link: Link) -> _Tries:
        return self._tries.setdefault(link, _Tries())
