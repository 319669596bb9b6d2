# SPDX-License-Identifier: Apache-2.0
"""A rate limit (token bucket) on what others cause: so many at once, then so many a second."""

from __future__ import annotations

import time
from dataclasses import field

from paddle_cluster.record import dataclass


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
