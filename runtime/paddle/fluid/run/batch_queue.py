# SPDX-License-Identifier: Apache-2.0
"""BatchQueue: batches that a thread makes ahead and `read` operators take, from one `start` to the next `reset`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from paddle.fluid.errors import RunError
from paddle.ops.base.errors import EndOfData
from paddle.reader.channel import Channel, pump, running

Batches = Callable[[], Iterable[list[Any]]]


class BatchQueue:
    """Holds a few batches; safe for several readers. It lies in a scope like any value, and says how it is described.

    Attributes:
        shape: as its variable's.
        dtype: as its variable's.
    """

    def __init__(self, capacity: int) -> None:
        self.shape: tuple[int, ...] = ()
        self.dtype = np.dtype("float32")
        self._capacity = capacity
        self._lock = threading.Lock()
        self._batches: Iterator[list[Any]] | None = None
        self._thread = ExitStack()

    def start(self, source: Batches) -> None:
        """Begin to make batches.

        Raises:
            RunError: it has begun already.
        """
        with self._lock:
            if self._batches is not None:
                raise RunError("the reader has started already: reset it first")
            ahead: Channel[list[Any]] = Channel(self._capacity)
            self._thread.enter_context(running([partial(pump, source, ahead)], [ahead]))
            self._batches = iter(ahead)

    def reset(self) -> None:
        """Throw away what was made, and end the thread; does nothing if it has not started."""
        self._thread.close()
        with self._lock:
            self._batches = None

    def read(self) -> list[Any]:
        """Return the values of the next batch; wait for it.

        Raises:
            EndOfData: there is none, until the reader is reset and started again.
            RunError: the reader has not started.
        """
        with self._lock:
            if self._batches is None:
                raise RunError("a program reads from a reader that has not started: call its start()")
            for batch in self._batches:
                return batch
        raise EndOfData("the reader has no more batches: reset it, and start it for another pass")
