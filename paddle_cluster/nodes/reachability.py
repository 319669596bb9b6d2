# SPDX-License-Identifier: Apache-2.0
"""Which node tries to reach which: all pairs of few nodes, and of many so few that n nodes make O(n log n) tries.

Of many, each tries those 1, 2, 4, ... places further round a ring of all: whatever parts the nodes in two halves, cuts
many of these ways, and a node that is cut off fails all of its own. The ways that a job begins with come on top.
"""

from __future__ import annotations

from collections.abc import Sequence

ALL_PAIRS = 16  # nodes, up to which everyone tries everyone
FIRST = 8  # of the pservers and trainers, whose ways to each other are tried in any case


def to_try(
    node_ids: Sequence[int], pservers: Sequence[int], trainers: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """By node, the other nodes that it tries.

    Args:
        node_ids: the nodes that can be asked; others are left out.
        pservers, trainers: node ids by rank.
    """
    ids = list(dict.fromkeys(node_ids))
    if len(ids) <= ALL_PAIRS:
        return {one: tuple(other for other in ids if other != one) for one in ids}
    tries = {one: dict.fromkeys(_ring(ids, place)) for place, one in enumerate(ids)}
    known = set(ids)
    first_servers = [one for one in pservers[:FIRST] if one in known]
    first_trainers = [one for one in trainers[:FIRST] if one in known]
    for server in first_servers:
        for trainer in first_trainers:
            if server != trainer:
                tries[server][trainer] = None
                tries[trainer][server] = None
    return {one: tuple(others) for one, others in tries.items()}


def _ring(ids: Sequence[int], place: int) -> list[int]:
    steps = []
    step = 1
    while step < len(ids):
        steps.append(ids[(place + step) % len(ids)])
        step *= 2
    return steps
