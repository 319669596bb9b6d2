# SPDX-License-Identifier: Apache-2.0
"""The place of every trainer: its rank, and which one it is on its node and on its machine. Ranks are node-major."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Seat(NamedTuple):
    """Where one trainer sits.

    Attributes:
        node_rank: index of its node among the nodes that have trainers.
        local_rank, local_size: which one of how many on its node.
        slot, slots: which one of how many on its machine; embedded nodes share one.
    """

    rank: int
    node_id: int
    node_rank: int
    local_rank: int
    local_size: int
    slot: int
    slots: int


def seats(trainer_nodes: Sequence[int], *, one_machine: bool) -> tuple[Seat, ...]:
    """The seats by rank.

    Args:
        trainer_nodes: node id by rank.
        one_machine: all nodes are embedded nodes of this machine.
    """
    sizes = Counter(trainer_nodes)
    node_ranks = {node_id: index for index, node_id in enumerate(sizes)}
    before: Counter[int] = Counter()
    found = []
    for rank, node_id in enumerate(trainer_nodes):
        local_rank, local_size = before[node_id], sizes[node_id]
        before[node_id] += 1
        slot, slots = (rank, len(trainer_nodes)) if one_machine else (local_rank, local_size)
        found.append(Seat(rank, node_id, node_ranks[node_id], local_rank, local_size, slot, slots))
    return tuple(found)


def share(count: int, seat: Seat) -> range:
    """Which of `count` things of a machine are a seat's own; with fewer things than seats some share one."""
    first = seat.slot * count // seat.slots
    return range(first, max((seat.slot + 1) * count // seat.slots, first + 1)) if count else range(0)
