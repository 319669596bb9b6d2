# SPDX-License-Identifier: Apache-2.0
"""Sums and broadcasts between nodes, by the first rank of each: in few rounds or round the ring, by size."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.collective.connection.stream import Stream
from paddle.collective.exchange.pieces import Pieces
from paddle.collective.exchange.recursive_doubling import LARGEST, small_sum
from paddle.collective.exchange.ring import Neighbours, ring_broadcast, ring_sum
from paddle.collective.exchange.task import Task
from paddle.collective.exchange.watch import Watch


class InterNode:
    """One node's part of it. Not thread-safe."""

    def __init__(self, ranks: Sequence[int], rank: int, streams: dict[int, Stream], watch: Watch) -> None:
        place, count = ranks.index(rank), len(ranks)
        self._ranks = tuple(ranks)
        before, after = ranks[(place - 1) % count], ranks[(place + 1) % count]
        self._ring = Neighbours(place, count, before, after, streams, watch)

    def sum(self, pieces: Pieces, task: Task) -> None:
        """Sum over all nodes, in place."""
        if pieces.nbytes <= LARGEST:
            small_sum(self._ring, self._ranks, pieces, task)
        else:
            ring_sum(self._ring, pieces, task)

    def broadcast(self, pieces: Pieces, task: Task, root: int) -> None:
        """Give the values of node `root`'s first rank to all nodes, in place."""
        ring_broadcast(self._ring, pieces, task, self._ranks.index(root))

    def close(self) -> None:
        """Close the connections."""
        for stream in self._ring.streams.values():
            stream.close()
