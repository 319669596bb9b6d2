# SPDX-License-Identifier: Apache-2.0
"""Another try at a server that turned a login away because it was busy with others (MaxStartups)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from paddle_cluster.errors import ConnectError

T = TypeVar("T")

RETRY_S = (0.1, 0.4)  # least and most before the second try at a busy server; doubled for each further one
LONGEST_RETRY_S = 2.0


class TurnedAwayError(Exception):
    """A server turned a login away that it may admit a moment later."""

    def __init__(self, error: ConnectError) -> None:
        super().__init__(str(error))
        self.error = error


def patiently(log_in: Callable[[], T], limit_s: float) -> T:
    """What a login returns, tried until it is admitted or the time is over; 0: tried once.

    Raises:
        ConnectError: it is not admitted, or whatever else the login raised.
    """
    deadline = time.monotonic() + limit_s
    least_s, most_s = RETRY_S
    while True:
        try:
            return log_in()
        except TurnedAwayError as busy:
            # jitter, or a crowd that was turned away comes back as a crowd
            wait_s = random.uniform(least_s, most_s)  # noqa: S311
            if time.monotonic() + wait_s >= deadline:
                raise busy.error from busy.__cause__
            time.sleep(wait_s)
            most_s = min(2 * most_s, LONGEST_RETRY_S)
