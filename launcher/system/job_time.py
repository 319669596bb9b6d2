# SPDX-License-Identifier: Apache-2.0
"""One time line for a job's logs: this machine's wall clock as it was at the start, carried on by the monotonic clock.

So a clock that is set while the job runs neither holds lines back nor puts them in another order. A node's clock is
compared with it at every ping, for it may drift or be set too.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

SAMPLES = 8
STEP_S = 0.05  # a difference that no round trip explains: the node's clock was set
_BASE = time.time() - time.monotonic()


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
