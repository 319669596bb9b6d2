# SPDX-License-Identifier: Apache-2.0
"""A bounded queue between threads that also carries the end, an error, and word that the consumer has left.

A wait here has no time limit, since a training step may take as long as it likes. It ends when the other
side acts, ends, fails or leaves, and both sides do one of these whatever happens to them.

Read-ahead: which readers may be asked for a batch before the one before it was trained with.

A reader is a program of the user's: it may look at what an event handler left for it, or end a pass when that says
so. So a trainer reads ahead only where samples come out of a buffer anyway, which was filled before its first
sample was used, or where what reads them is known here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from paddle.threads import ServiceThread

T = TypeVar("T")

STOP_S = 5.0

logger = logging.getLogger(__name__)


class ClosedError(Exception):
    """Nobody will take what is put into this channel."""


class Channel(Generic[T]):
    """A bounded first-in-first-out queue; safe for any number of producing and consuming threads."""

    def __init__(self, capacity: int, producers: int = 1) -> None:
        self._changed = threading.Condition()
        self._items: deque[T] = deque()
        self._capacity = capacity
        self._producers = producers
        self._error: BaseException | None = None
        self._left = False

    def put(self, item: T) -> None:
        """Adds an item; blocks while the channel is full.

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
        """Says that one producer has no more items; iteration stops when all have said so."""
        with self._changed:
            self._producers -= 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Makes iteration raise `error` after the items already here."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def leave(self) -> None:
        """Says that nobody will take items any more."""
        with self._changed:
            self._left = True
            self._items.clear()
            self._changed.notify_all()

    def __len__(self) -> int:
        """How many items are here."""
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
    """Puts everything `source()` gives into `out`, then its end or its error; stops when nobody listens."""
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
    """Runs each job on a thread of its own; on exit leaves the channels and joins the threads (STOP_S)."""
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
        logger.warning("%d reader threads still wait for their source after %.0f s", stuck, STOP_S)


_MARK = "may_be_read_ahead"

_Reader = TypeVar("_Reader", bound=Callable[[], Iterable[Any]])


def marked(reader: _Reader, sources: Iterable[Callable[[], Iterable[Any]]] = ()) -> _Reader:
    """Let a reader be read ahead, if all its sources may."""
    setattr(reader, _MARK, all(map(may_be_read_ahead, sources)))
    return reader


def may_be_read_ahead(reader: Callable[[], Iterable[Any]]) -> bool:
    """Return whether a trainer may read a batch of it before the one before was trained with."""
    return bool(getattr(reader, _MARK, False))
