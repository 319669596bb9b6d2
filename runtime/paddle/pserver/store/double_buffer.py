# SPDX-License-Identifier: Apache-2.0
"""The two arrays of a server's dense blocks: the values that hold, and those after the step that is under way.

They lie in memory of large pages until somebody asks for descriptors of them; shared memory has small pages, through
which everything takes longer.
"""

from __future__ import annotations

import numpy as np

from paddle.pserver.store.gradient import Slab
from paddle.pserver.wire.shared_memory import SharedArray


class DoubleBuffer:
    """Two arrays (size,) float32, zero at first, that change places.

    Attributes:
        now: what holds.
        later: sums of gradients, or values after the step that was begun.
    """

    def __init__(self, size: int) -> None:
        self.now: Slab = np.zeros(size, np.float32)
        self.later: Slab = np.zeros(size, np.float32)
        self.number = 0
        self._shared: list[SharedArray] = []

    def swap(self) -> None:
        """Let what was to come hold."""
        self.now, self.later = self.later, self.now
        self.number = 1 - self.number

    def share(self) -> list[SharedArray]:
        """Return the memory, which others may map; `number` tells which part of it has `now`.

        The arrays move there: whoever holds the old ones has what they were.

        Raises:
            MemoryError: there is not so much.
        """
        if not self._shared:
            first, second = SharedArray(self.now.size), SharedArray(self.now.size)
            # One after the other: the old memory of one is free before that of the next one is touched.
            first.array[...] = self.now
            self.now = first.array
            second.array[...] = self.later
            self.later = second.array
            self._shared, self.number = [first, second], 0
        return self._shared
