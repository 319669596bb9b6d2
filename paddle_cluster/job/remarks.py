# SPDX-License-Identifier: Apache-2.0
"""Rate-limited notices about nodes on the screen; excess notices are only counted."""

from __future__ import annotations

import time

from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.screen.console import Console
from paddle_cluster.text.sizes import counted
from paddle_node.contract.classes import dataclass, field


@dataclass
class RateLimit:
    """A rate limit (a token bucket) that counts rejected requests.

    Attributes:
        burst: maximum number of events in a burst.
        rate: number of events per second after a burst.
        refused: number of rejections since the last accepted request.
    """

    burst: float
    rate: float
    refused: int = 0
    _left: float = field(init=False)
    _at: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        self._left = self.burst

    def take(self, now: float | None = None) -> bool:
        """Take one token if there is one; return whether the event is within the limit."""
        moment = time.monotonic() if now is None else now
        self._left = min(self.burst, self._left + (moment - self._at) * self.rate)
        self._at = moment
        if self._left < 1:
            self.refused += 1
            return False
        self._left -= 1
        return True


BURST = 100  # more processes than most nodes have, all of which may freeze simultaneously
A_SECOND = 1.0  # the same limit as in agents


class Remarks:
    """The notices of one kind about nodes, with a rate limit for each node.

    Args:
        lease_s: time in seconds for which a node can be disconnected; its accumulated messages then arrive together.
    """

    def __init__(self, console: Console, lease_s: float) -> None:
        self._console = console
        self._burst = BURST + lease_s * A_SECOND
        self._limits: dict[int, RateLimit] = {}

    def show(self, record: NodeRecord, text: str) -> None:
        """Show a notice about a node, or only count it if there are too many."""
        limit = self._limits.setdefault(record.node.node_id, RateLimit(self._burst, A_SECOND))
        refused = limit.refused
        if not limit.take():
            if not refused:
                self._console.note(
                    f"{record.name}: messages of this node arrive too fast; some are not shown"
                )
            return
        if refused:
            limit.refused = 0
            self._console.note(f"{record.name}: {counted(refused, 'remark')} not shown")
        self._console.note(text)
