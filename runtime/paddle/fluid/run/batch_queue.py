# SPDX-License-Identifier: Apache-2.0
"""BatchQueue: prefetched batches, which `read` operators take between `start` and `reset`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from paddle.fluid.errors import RunError
from paddle.graph.block import Block
from paddle.graph.errors import NotInitializedError
from paddle.graph.operator import script_line
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import EndOfData
from paddle.reader.channel import Channel, pump, running

_log = logging.getLogger(__name__)

NOT_STARTED = (
    "the reader of the program is not started: call its start() before each pass of a py_reader, "
    "or run the startup program that opens its files"
)

Batches = Callable[[], Iterable[list[Any]]]


class BatchQueue:
    """A queue of batches that a thread prefetches for `read` operators; stored in a scope like any other value.

    Attributes:
        shape: the shape of a value's variable.
        dtype: the dtype of a value's variable.
    """

    def __init__(self, capacity: int) -> None:
        self.shape: tuple[int, ...] = ()
        self.dtype = np.dtype("float32")
        self._capacity = capacity
        self._lock = threading.Lock()
        self._ahead: Channel[list[Any]] | None = None
        self._batches: Iterator[list[Any]] | None = None
        self._taken = self._ends = 0
        self._thread = ExitStack()

    def size(self) -> int:
        """Return the number of prefetched batches."""
        return 0 if self._ahead is None else len(self._ahead)

    def start(self, source: Batches) -> None:
        """Start prefetching batches from a source.

        Raises:
            RunError: the queue has already started.
        """
        with self._lock:
            if self._batches is not None:
                raise RunError("the reader has already started: reset it first")
            self._ahead = ahead = Channel[list[Any]](self._capacity)
            self._taken = self._ends = 0
            self._thread.enter_context(running([partial(pump, source, ahead)], [ahead]))
            self._batches = iter(ahead)

    def reset(self) -> None:
        """Discard the prefetched batches and end the thread; does nothing if the queue has not started."""
        self._thread.close()
        with self._lock:
            self._batches = self._ahead = None

    def read(self) -> list[Any]:
        """Wait for the next batch and return its values.

        Raises:
            EndOfData: there are no more batches, until the reader is reset and started again.
            RunError: the reader has not started.
        """
        with self._lock:
            if self._batches is None:
                raise RunError(NOT_STARTED)
            for batch in self._batches:
                self._taken += 1
                return batch
            if not self._taken:
                _log.warning("the reader returned no batch: there is nothing to train on")
                self._taken = 1
            self._ends += 1
            if self._ends == 2 and threading.current_thread() is threading.main_thread():
                _log.warning(
                    "%s: a pass without batches, because the reader has not restarted: call its reset() and start() "
                    "before each pass",
                    script_line().removeprefix("at "),
                )
        raise EndOfData(
            "the reader has no more batches: catch fluid.core.EOFException, reset the reader, and start it for another "
            "pass"
        )


@contextmanager
def readers_named(block: Block) -> Iterator[None]:
    """Return a context in which the error of a reader that has not started names the reader.

    Raises:
        RunError: the reader has not started.
    """
    try:
        yield
    except NotInitializedError as error:
        if getattr(block.find(error.name), "type", None) == VarType.READER:
            raise RunError(f"reader {error.name!r}: {NOT_STARTED}") from error
        raise
