# SPDX-License-Identifier: Apache-2.0
"""What waits on a server, and who lags behind: what somebody who watches a job is told about once a second. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class QueueFacts(NamedTuple):
    """One server, or all ports of a process.

    Attributes:
        version: batches applied so far, in asynchronous training gradients.
        requests: that came since the process began.
        waiting: trainers whose gradient, or whose word that a pass begins or ends, waits for others'.
        missing: the trainers that those wait for.
        waited_s: for how long nothing was applied meanwhile.
        lags: in asynchronous training of each trainer how many pushes came since its own last one.
    """

    version: int = 0
    requests: int = 0
    waiting: int = 0
    missing: tuple[int, ...] = ()
    waited_s: float = 0.0
    lags: tuple[tuple[int, int], ...] = ()


def of_all(facts: Iterable[QueueFacts]) -> QueueFacts:
    """Several servers as one: the furthest behind of each kind, and the sum of their requests."""
    known = [each for each in facts if each.requests]
    if not known:
        return QueueFacts()
    longest = max(known, key=lambda each: (each.waited_s, each.waiting))
    lags: dict[int, int] = {}
    for each in known:
        for trainer, lag in each.lags:
            lags[trainer] = max(lag, lags.get(trainer, 0))
    return QueueFacts(
        min(each.version for each in known),
        sum(each.requests for each in known),
        longest.waiting,
        longest.missing,
        longest.waited_s,
        tuple(sorted(lags.items())),
    )
