# SPDX-License-Identifier: Apache-2.0
"""All dense values on their way to and from servers, in parts: a shard may be larger than a message may be."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from paddle.pserver.client.exchange import Exchange
from paddle.pserver.client.layout import Array, Layout
from paddle.pserver.client.tables import reply_array
from paddle.pserver.wire.chunks import PART, part_span
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Ok, Pull, SetValues

_TRIES = 3


class WholeSlabs:
    """A client's requests about all dense values. Not thread-safe; all methods block."""

    def __init__(self, exchange: Exchange, endpoints: tuple[str, ...], layout: Layout) -> None:
        self._exchange, self._endpoints, self._layout = exchange, endpoints, layout

    def send(self, servers: Collection[int], flat: Mapping[str, Array]) -> None:
        """Give servers their part of whole parameters (size,)."""
        self._layout.gather(flat)
        for start in range(0, self._longest(servers), PART):
            parts = {i: self._layout.slabs[i][part_span(start, self._size(i))] for i in servers}
            self._exchange.run(
                {
                    i: Message(SetValues(start), sections=(Section("", part),))
                    for i, part in parts.items()
                    if part.size or not start
                }
            )

    def pull(self, views: Mapping[str, Array]) -> None:
        """Fill whole parameters (size,) with what the servers hold.

        All values of a server are of one moment, unless others go on training asynchronously meanwhile.

        Raises:
            PserverError: see `Client`.
        """
        servers = [i for i, size in enumerate(slab.size for slab in self._layout.slabs) if size]
        for _ in range(_TRIES):
            stamps: dict[int, set[int]] = {i: set() for i in servers}
            for start in range(0, self._longest(servers), PART):
                asked = {i: part_span(start, self._size(i)) for i in servers if start < self._size(i)}
                replies = self._exchange.run(
                    {i: Message(Pull(start, s.stop - s.start)) for i, s in asked.items()}
                )
                for i, reply in replies.items():
                    shape = (asked[i].stop - start,)
                    self._layout.slabs[i][asked[i]] = reply_array(reply, self._endpoints[i], "", shape)
                    stamps[i].add(reply.expect(Ok).version)
            if all(len(seen) == 1 for seen in stamps.values()):
                break
        for i in servers:
            self._layout.scatter(i, self._layout.slabs[i], views)

    def _size(self, index: int) -> int:
        return self._layout.slabs[index].size

    def _longest(self, servers: Collection[int]) -> int:
        return max((max(self._size(i), 1) for i in servers), default=0)
