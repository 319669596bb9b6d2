# SPDX-License-Identifier: Apache-2.0
"""Remarks about nodes on the screen: each within a rate limit of its node; those over it are counted."""

from __future__ import annotations

import time
from dataclasses import field

from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.screen.console import Console
from paddle_cluster.text.sizes import counted
from paddle_node.contract.classes import dataclass


@dataclass
class RateLimit:
    """One rate limit, a token bucket; what is refused is counted.

    Attributes:
        burst: how many at once.
        rate: how many a second after that.
        refused: how many were refused since the last one that was not.
    """

    burst: float
    rate: float
    refused: int = 0
    _left: float = field(init=False)
    _at: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self._left = self.burst

    def take(self, now: float | None = None) -> bool:
        """Whether one more is in order."""
        moment = time.monotonic() if now is None else now
        self._left = min(self.burst, self._left + (moment - self._at) * self.rate)
        self._at = moment
        if self._left < 1:
            self.refused += 1
            return False
        self._left -= 1
        return True


BURST = 100  # more processes than most nodes have, which may all freeze at once
A_SECOND = 1.0  # as agents limit themselves


class Remarks:
    """Shows the remarks of one kind.

    Args:
        lease_s: for so long a node may be cut off; what it had to say meanwhile comes all at once.
    """

    def __init__(self, console: Console, lease_s: float) -> None:
        self._console = console
        self._burst = BURST + lease_s * A_SECOND
        self._limits: dict[int, RateLimit] = {}

    def show(self, record: NodeRecord, text: str) -> None:
        """Show a remark about a node, or count it."""
        limit = self._limits.setdefault(record.node.node_id, RateLimit(self._burst, A_SECOND))
        refused = limit.refused
        if not limit.take():
            if not refused:
                self._console.note(f"{record.name}: its messages come too fast; some are not shown")
            return
        if refused:
            limit.refused = 0
            self._console.note(f"{record.name}: {counted(refused, 'remark')} not shown")
        self._console.note(text)
