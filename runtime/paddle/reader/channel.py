# SPDX-License-Identifier: Apache-2.0
"""Channel: a bounded queue between threads, which also signals the end of the data, errors, and consumers that left.

Waits have no time limit, because a training step can take any time. They end when the other side acts, ends, fails or
leaves, one of which is certain to happen.

The module also determines which readers may be read ahead: asked for a batch before the previous one is used.

A reader is user code: it may depend on what an event handler did after the previous batch. A trainer
therefore reads ahead only if the samples come from a buffer, which is filled before its first sample is used
anyway, or from a reader of this package.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from paddle.errors import ConfigError
from paddle.threads import ServiceThread

T = TypeVar("T")

STOP_S = 5.0

logger = logging.getLogger(__name__)


class ClosedError(Exception):
    """Raised when a channel's consumer has left, or another producer has failed."""


class Channel(Generic[T]):
    """A bounded FIFO queue for any number of producing and consuming threads."""

    def __init__(self, capacity: int, producers: int = 1) -> None:
        self._changed = threading.Condition()
        self._items: deque[T] = deque()
        self._capacity = capacity
        self._producers = producers
        self._error: BaseException | None = None
        self._left = False

    def put(self, item: T) -> None:
        """Add an item; block while the channel is full.

        Raises:
            ClosedError: the consumer has left, or another producer has failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed() or len(self._items) < self._capacity)
            if self._closed():
                raise ClosedError
            self._items.append(item)
            self._changed.notify_all()

    def end(self) -> None:
        """Signal that one producer has finished; iteration ends when all producers have."""
        with self._changed:
            self._producers -= 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Make iteration raise `error` after the items that are already queued."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def leave(self) -> None:
        """Signal that the consumer takes no more items, so that producers stop."""
        with self._changed:
            self._left = True
            self._items.clear()
            self._changed.notify_all()

    def __len__(self) -> int:
        """Return the number of queued items."""
        return len(self._items)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._closed() or self._producers <= 0)
                if self._items:
                    item = self._items.popleft()
                    self._changed.notify_all()
                elif self._error is not None and not self._left:
                    raise self._error
                else:
                    return
            yield item

    def _closed(self) -> bool:
        return self._left or self._error is not None


def pump(source: Callable[[], Iterable[T]], out: Channel[T]) -> None:
    """Put all items of `source()` into `out`, then its end or error; stop when the consumer leaves."""
    try:
        for item in source():
            out.put(item)
    except ClosedError:
        pass
    except BaseException as error:  # noqa: BLE001  it is raised where the channel is read
        out.fail(error)
    else:
        out.end()


@contextmanager
def running(jobs: Iterable[Callable[[], None]], channels: Iterable[Channel[Any]]) -> Iterator[None]:
    """Return a context that runs each job on a thread; on exit, it leaves the channels and joins the threads."""
    threads = [ServiceThread(job, name="paddle-reader") for job in jobs]
    try:
        yield
    finally:
        for channel in channels:
            channel.leave()
        _join(threads)


def _join(threads: list[ServiceThread[None]]) -> None:
    deadline = time.monotonic() + STOP_S
    # The garbage collector may close an abandoned reader on any thread, also on one of these: `join` allows for it.
    stuck = sum(not thread.join(max(0.0, deadline - time.monotonic())) for thread in threads)
    if stuck:
        logger.warning("%d reader threads are still waiting for their source after %.0f s", stuck, STOP_S)


_MARK = "may_be_read_ahead"

_Reader = TypeVar("_Reader", bound=Callable[[], Iterable[Any]])


def marked(reader: _Reader, sources: Sequence[Callable[[], Iterable[Any]]] = ()) -> _Reader:
    """Mark a reader as one that trainers may read ahead, if this holds for all its sources; return the reader.

    Raises:
        ConfigError: a source is not a reader.
    """
    require_readers(*sources)
    setattr(reader, _MARK, all(map(may_be_read_ahead, sources)))
    return reader


def require_readers(*given: object) -> None:
    """Raise ConfigError for the first value that is not a function, such as the generator that a reader returns."""
    for each in given:
        if not callable(each):
            raise ConfigError(
                f"expected a reader, which is a function that returns the samples, got a {type(each).__name__}; pass "
                "the function itself: reader, not reader()"
            )


def may_be_read_ahead(reader: Callable[[], Iterable[Any]]) -> bool:
    """Return whether a trainer may read the next batch before it has trained on the previous one."""
    return bool(getattr(reader, _MARK, False))
