# SPDX-License-Identifier: Apache-2.0
"""Clocks: one time line for a job's logs, and how far a node's clock is from ours, from pings.

Of pings the fastest round trip counts, and half of it is the uncertainty: a node reads its clock somewhere between our
sending and our receiving; assuming the middle is wrong by at most half the round trip, whatever the two ways take.

The time line is this machine's wall clock as it was at the start, carried on by the monotonic clock. So a clock that is
set while the job runs neither holds lines back nor puts them in another order. A node's clock is compared with it at
every ping, for it may drift or be set too.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

PINGS = 5
FIRST_SEQ = 1 << 40  # far from the numbers of the pings that renew leases
SAMPLES = 8
STEP_S = 0.05  # a difference that no round trip explains: the node's clock was set
_BASE = time.time() - time.monotonic()


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


def now() -> float:
    """Seconds since the epoch, never going back."""
    return _BASE + time.monotonic()


@dataclass
class NodeTime:
    """How far a node's clock is off, from the last pings that renewed its lease; the fastest round trip counts."""

    _asked: dict[int, float] = field(default_factory=dict)
    _samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    def asked(self, seq: int, moment: float | None = None) -> None:
        """A ping goes out.

        Args:
            moment: when, as `now` tells it.
        """
        self._asked[seq] = now() if moment is None else moment
        while len(self._asked) > SAMPLES:
            del self._asked[next(iter(self._asked))]

    def answered(self, seq: int, clock: float, moment: float | None = None) -> None:
        """A pong came; one that was not asked for changes nothing.

        Args:
            clock: the node's wall clock when it answered, in seconds.
            moment: when it came, as `now` tells it.
        """
        sent = self._asked.pop(seq, None)
        if sent is None:
            return
        came = now() if moment is None else moment
        error, offset = (came - sent) / 2, clock - (came + sent) / 2
        if self._samples:
            best_error, best = min(self._samples)
            if abs(offset - best) > error + best_error + STEP_S:
                self._samples.clear()
        self._samples.append((error, offset))

    def offset_s(self, otherwise: float) -> float:
        """The node's clock minus ours; `otherwise` before the first pong."""
        return min(self._samples)[1] if self._samples else otherwise
