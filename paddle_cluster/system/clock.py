# SPDX-License-Identifier: Apache-2.0
"""A common timeline for the logs of a job, and the measurement of nodes' clock offsets by pings.

The ping with the fastest round trip counts, and half of its time is the uncertainty. A node reads its clock between
sending and receiving, so the midpoint is wrong by at most half the round-trip time.

The timeline is this machine's wall clock at the start, advanced by the monotonic clock. Therefore, setting the clock
while the job runs neither delays nor reorders lines. A node's clock is compared with it at every ping, because it may
drift or be set too.
"""

from __future__ import annotations

import time
from collections import deque

from paddle_node.contract.classes import dataclass, field

FIRST_SEQ = 1 << 40  # of the ping of the preflight, far from the sequence numbers of pings that renew leases
SAMPLES = 8
STEP_S = 0.05  # a difference that no round trip explains: the node's clock was set
_BASE = time.time() - time.monotonic()


def now() -> float:
    """Return the time of the job's timeline, in seconds since 1970; it never decreases."""
    return _BASE + time.monotonic()


@dataclass
class NodeClock:
    """An estimate of a node's clock offset from the last pings; the ping with the fastest round trip counts.

    Attributes:
        guess_s: the assumed offset until a ping is answered.
    """

    guess_s: float = 0.0
    _sent_at: dict[int, float] = field(default_factory=dict)
    _samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=SAMPLES))

    @property
    def offset_s(self) -> float:
        """Return the node's clock minus this machine's, in seconds."""
        return min(self._samples)[1] if self._samples else self.guess_s

    @property
    def error_s(self) -> float:
        """Return the uncertainty of the offset in seconds; infinite before the first reply."""
        return min(self._samples)[0] if self._samples else float("inf")

    def asked(self, seq: int, moment: float | None = None) -> None:
        """Record the time at which a ping was sent.

        Args:
            moment: the time according to `now`.
        """
        self._sent_at[seq] = now() if moment is None else moment
        while len(self._sent_at) > SAMPLES:
            del self._sent_at[next(iter(self._sent_at))]

    def answered(self, seq: int, clock: float, moment: float | None = None) -> None:
        """Record the reply to a ping; ignore a reply to an unknown ping.

        Args:
            clock: the node's wall clock in seconds when it answered.
            moment: the time of arrival according to `now`.
        """
        sent = self._sent_at.pop(seq, None)
        if sent is None:
            return
        came = now() if moment is None else moment
        error, offset = (came - sent) / 2, clock - (came + sent) / 2
        if self._samples and abs(offset - self.offset_s) > error + self.error_s + STEP_S:
            self._samples.clear()
        self._samples.append((error, offset))
