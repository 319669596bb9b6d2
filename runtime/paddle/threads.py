# SPDX-License-Identifier: Apache-2.0
"""The thread class and the event flag of the runtime. docs/threads.md lists all threads."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")


def left_to_finish(error: Exception) -> None:
    """Ignore an error; for use as `failed` of a thread whose `finish` raises the error."""


class Flag:
    """An event flag that both signal handlers and threads can set; it stays set.

    A handler must not set a `threading.Event`: if it interrupts the thread that waits for the event, that thread holds
    the event's lock, and both wait for ever.
    """

    def __init__(self) -> None:
        self._set: queue.SimpleQueue[None] = queue.SimpleQueue()  # its `put` is reentrant

    def set(self) -> None:
        """Set the flag, and wake up the threads that wait for it."""
        self._set.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the flag for at most `timeout_s` seconds; return whether it is set."""
        try:
            self._set.get(timeout=timeout_s)
        except queue.Empty:
            return False
        self._set.put(None)
        return True


class ServiceThread(Generic[T]):
    """A daemon thread that calls a function once; its result or error is available afterwards.

    Attributes:
        error: the exception that ended the function, if any.
    """

    def __init__(
        self, work: Callable[[], T], *, name: str, failed: Callable[[Exception], None] | None = None
    ) -> None:
        """Start the thread.

        Args:
            failed: called in the thread with an exception of `work`. None means it is logged.
        """
        self.error: Exception | None = None
        self._failed = failed or self._log
        self._result: T
        self._thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Return whether the function is still running."""
        return self._thread.is_alive()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the function for at most `timeout_s` seconds; do not wait in the thread itself.

        Return whether the function has ended.
        """
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def finish(self) -> T:
        """Wait for the end of the function; return its result, or raise its exception. The thread is then joined."""
        self.join()
        if self.error is not None:
            raise self.error
        return self._result

    def _log(self, error: Exception) -> None:
        _log.error("thread %s failed", self._thread.name, exc_info=error)

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._result = work()
        except Exception as error:  # noqa: BLE001 - whatever it is: who joins hears of it
            self.error = error
            self._failed(error)
