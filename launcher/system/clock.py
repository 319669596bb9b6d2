# SPDX-License-Identifier: Apache-2.0
"""How far a node's clock is from ours, from pings: the fastest round trip counts, and half of it is the uncertainty.

A node reads its clock somewhere between our sending and our receiving; assuming the middle is wrong by at most half
the round trip, whatever the two ways take.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

PINGS = 5
FIRST_SEQ = 1 << 40  # far from the numbers of the pings that renew leases


@dataclass
class ClockEstimate:
    """The estimate of one node, better with every pong.

    Attributes:
        offset_s: the node's clock minus ours.
        error_s: how wrong that may be; infinite before the first pong.
    """

    offset_s: float = 0.0
    error_s: float = float("inf")
    _sent: dict[int, float] = field(default_factory=dict)

    def ping(self, now: float | None = None) -> int | None:
        """The seq of the next ping, which is sent now; None when enough were sent.

        Args:
            now: monotonic seconds.
        """
        if len(self._sent) >= PINGS:
            return None
        seq = FIRST_SEQ + len(self._sent)
        self._sent[seq] = time.monotonic() if now is None else now
        return seq

    def pong(self, seq: int, node_clock: float, now: float | None = None, wall: float | None = None) -> bool:
        """An answer came; False when it was not to a ping of ours.

        Args:
            node_clock: the node's wall clock when it answered.
            now: monotonic seconds.
            wall: our wall clock at `now`.
        """
        sent = self._sent.get(seq)
        if sent is None:
            return False
        round_trip_s = (time.monotonic() if now is None else now) - sent
        if round_trip_s / 2 < self.error_s:
            self.error_s = round_trip_s / 2
            self.offset_s = node_clock - ((time.time() if wall is None else wall) - self.error_s)
        return True
