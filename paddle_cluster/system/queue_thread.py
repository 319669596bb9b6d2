# SPDX-License-Identifier: Apache-2.0
"""A thread that drains a bounded queue, can be woken and joined, and reports its failure."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class QueueThread(Generic[T]):
    """A thread that passes queued items, in order, to a function.

    All methods but `pause`, `join` and `close` return immediately.

    Args:
        name: the thread's name.
        drain: receives the waiting items, and whether they are the last. It is called when there are items, after a
            wake-up, and after the number of seconds that it returned, if any. If it raises, the thread ends.
        most: maximum total size of the waiting items.
        at_once: number of items in one call.
        first_s: seconds until the first call without items.
        is_patient: whether items wait until the time has passed, without waking the thread.
    """

    def __init__(
        self,
        drain: Callable[[Sequence[T], bool], float | None],
        *,
        name: str,
        most: int | None = None,
        at_once: int | None = None,
        first_s: float | None = None,
        is_patient: bool = False,
    ) -> None:
        self._drain = drain
        self._most = most
        self._at_once = at_once
        self._first_s = first_s
        self._is_patient = is_patient
        self._waiting: deque[tuple[T, int]] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._is_woken = False
        self._is_finishing = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_finishing(self) -> bool:
        """Return whether `finish` was called."""
        return self._is_finishing

    @property
    def is_alive(self) -> bool:
        """Return whether the thread is running."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, with the items that are already waiting."""
        self._thread.start()

    def put(self, item: T, size: int = 0) -> bool:
        """Append an item; return False if the queue is full or finished. An item without a size always fits."""
        with self._changed:
            if self._is_finishing or (size and self._most is not None and self._size + size > self._most):
                return False
            self._waiting.append((item, size))
            self._size += size
            if not self._is_patient:
                self._is_woken = True
                self._changed.notify()
            return True

    def wake(self) -> None:
        """Make the thread call `drain` soon, even if the queue is empty."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def finish(self) -> None:
        """Accept no further items; the thread ends after it has drained the waiting ones."""
        with self._changed:
            self._is_finishing = True
            self._changed.notify()

    def pause(self, seconds: float) -> bool:
        """Sleep in `drain`, until `finish` is called at the latest; return whether it was called."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_finishing, seconds)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; return whether it has. A thread that was not started counts as ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self, timeout_s: float) -> bool:
        """Finish the queue, and wait at most `timeout_s` seconds for the thread to end; return whether it has."""
        self.finish()
        return self.join(timeout_s)

    def _work(self) -> None:
        wait_s, is_last = self._first_s, False
        while not is_last:
            with self._changed:
                self._changed.wait_for(lambda: self._is_woken or self._is_finishing, wait_s)
                count = min(len(self._waiting), self._at_once or len(self._waiting))
                taken = [self._waiting.popleft() for _ in range(count)]
                self._size -= sum(size for _, size in taken)
                self._is_woken = bool(self._waiting)
                is_last = self._is_finishing and not self._waiting
            wait_s = self._drain([item for item, _ in taken], is_last)
