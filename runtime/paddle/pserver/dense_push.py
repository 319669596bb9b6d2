# SPDX-License-Identifier: Apache-2.0
"""The dense gradients of one batch for one server, and where the values that come back belong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paddle.errors import WireError
from paddle.pserver.chunks import chunk_span
from paddle.pserver.layout import Array, Layout
from paddle.pserver.message import Message, Section
from paddle.pserver.transfer import Transfer


class DensePush:
    """Gradients `flat` and values `views`, whole parameters (size,) by name; neither is copied as a whole."""

    def __init__(
        self,
        layout: Layout,
        index: int,
        endpoint: str,
        flat: Mapping[str, Array],
        chunks: Sequence[Section | None],
        views: Mapping[str, Array],
    ) -> None:
        """Prepare a push to server `index`; `chunks` is what `Layout.cut` returned."""
        self._layout, self._index, self._endpoint = layout, index, endpoint
        self._flat, self._chunks, self._views = flat, chunks, views

    def transfer(self, head: Message, rows: Sequence[Section]) -> Transfer:
        """Return the request: a message with all, or one that chunks follow."""
        count = len(self._chunks)
        if count > 1:
            return Transfer(
                head._replace(extra=count, sections=tuple(rows)),
                count,
                self._chunk,
                self._deliver,
                self._place,
            )
        slab = self._chunk(0) if count else Section("", np.zeros(0, np.float32))
        return Transfer(head._replace(sections=(slab, *rows)))

    def _chunk(self, number: int) -> Section:
        return self._chunks[number] or self._layout.chunk(self._index, number, self._flat)

    def _deliver(self, number: int, values: Section) -> None:
        span = chunk_span(number, self._layout.slabs[self._index].size)
        array = values.array
        if array.shape != (span.stop - span.start,) or array.dtype != np.float32:
            raise WireError(
                f"pserver {self._endpoint}: expected ({span.stop - span.start},) float32, "
                f"got {array.shape} {array.dtype}",
                self._endpoint,
            )
        home = self._home(number)
        if home is None or home.ctypes.data != array.ctypes.data:
            self._layout.spread(self._index, number, array, self._views)

    def _place(self, number: int) -> memoryview | None:
        home = self._home(number)
        return None if home is None else home.data.cast("B")

    def _home(self, number: int) -> Array | None:
        return self._layout.home(self._index, number, self._views)
