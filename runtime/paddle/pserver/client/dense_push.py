# SPDX-License-Identifier: Apache-2.0
"""The dense gradients of one batch for one server, and where the values that come back belong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paddle.errors import WireError
from paddle.pserver.client.layout import Array, Layout
from paddle.pserver.client.transfer import Transfer
from paddle.pserver.wire.chunks import chunk_span
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import PushPull


class Inspection:
    """Looks for NaN and infinity in the gradients of a step, chunk by chunk, each once, before it is sent.

    A server uses a push only when it is whole. So the last chunk for each server goes out when all chunks for all
    servers were looked at, and until then everything can be taken back.

    Attributes:
        has_given: whether any chunk was given to be sent.
    """

    def __init__(self, layout: Layout, flat: Mapping[str, Array]) -> None:
        """Look at nothing yet. `flat`: whole parameters (size,) by name."""
        self._layout, self._flat = layout, flat
        self.has_given = False
        self._left: dict[tuple[int, int], None] = {}
        self._chunks: dict[tuple[int, int], Section | None] = {}

    def add(self, index: int) -> int:
        """Take all chunks for server `index`; return how many they are."""
        count = self._layout.num_chunks(index)
        for number in range(count):
            self._left[index, number] = None
        return count

    def chunk(self, index: int, number: int) -> Section:
        """Return a chunk that may be sent.

        Raises:
            ConfigError: a gradient is NaN or infinite.
        """
        if number + 1 == self._layout.num_chunks(index):
            self.finish()
        section = self._look(index, number) or self._layout.chunk(index, number, self._flat)
        self.has_given = True
        return section

    def finish(self) -> None:
        """Look at what is left.

        Raises:
            ConfigError: see `chunk`.
        """
        for each in list(self._left):
            self._look(*each)

    def _look(self, index: int, number: int) -> Section | None:
        at = (index, number)
        if at in self._left:
            self._chunks[at] = self._layout.checked(index, number, self._flat)
            del self._left[at]
        return self._chunks[at]


class DensePush:
    """Gradients from `inspection`, values `views`: whole parameters (size,) by name; neither is copied as a whole."""

    def __init__(
        self, layout: Layout, index: int, endpoint: str, inspection: Inspection, views: Mapping[str, Array]
    ) -> None:
        """Prepare a push to server `index`."""
        self._layout, self._index, self._endpoint = layout, index, endpoint
        self._inspection, self._views = inspection, views
        self._homes: dict[int, Array] = {}
        self.count = inspection.add(index)

    def transfer(self, head: Message, rows: Sequence[Section]) -> Transfer:
        """Return the request: a message with all, or one that chunks follow."""
        if self.count > 1:
            head = head._replace(
                record=head.expect(PushPull)._replace(chunks=self.count), sections=tuple(rows)
            )
            return Transfer(head, self.count, self._chunk, self._deliver, self._place)
        if not self.count:
            return Transfer(head._replace(sections=(Section("", np.zeros(0, np.float32)), *rows)))
        return Transfer(head._replace(sections=(self._chunk(0), *rows)), place=self._place)

    def finish(self, values: Section) -> None:
        """Take all values, if they came with the reply.

        Raises:
            WireError: they are not what the server has.
        """
        if self.count:
            self._deliver(0, values)

    def _chunk(self, number: int) -> Section:
        return self._inspection.chunk(self._index, number)

    def _deliver(self, number: int, values: Section) -> None:
        span = chunk_span(number, self._layout.slabs[self._index].size)
        array = values.array
        if array.shape != (span.stop - span.start,) or array.dtype != np.float32:
            raise WireError(
                f"pserver {self._endpoint}: expected ({span.stop - span.start},) float32, "
                f"got {array.shape} {array.dtype}",
                self._endpoint,
            )
        home = self._homes.pop(number, None)
        if home is None or not np.may_share_memory(home, array):
            self._layout.spread(self._index, number, array, self._views)

    def _place(self, number: int) -> memoryview | None:
        home = self._layout.home(self._index, number, self._views)
        if home is None:
            return None
        self._homes[number] = home
        return home.data.cast("B")
