# SPDX-License-Identifier: Apache-2.0
"""Worker threads for what may block: more of them only while some are stuck, none while there is no work.

A task is one piece of work that never runs twice at the same time and runs again when it was asked for
meanwhile. A turn of it is short, so that thousands of tasks share few threads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

USUAL = 4  # threads; more are started while these are stuck
STUCK_S = 0.1
IDLE_S = 1.0


class Task:
    """One piece of work; its state belongs to `WorkerThreads`."""

    def __init__(self, turn: Callable[[], bool]) -> None:
        self.turn = turn
        self.busy = False
        self.wanted = False


class WorkerThreads:
    """Threads that take turns at tasks; daemons, gone when idle for IDLE_S, or at once after `dismiss`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._none_left = threading.Condition(self._lock)
        self._waiting: deque[Task] = deque()
        self._threads = 0
        self._idle = 0
        self._taken_at = time.monotonic()
        self._may_idle = True

    @property
    def threads(self) -> int:
        """How many there are now."""
        return self._threads

    def task(self, turn: Callable[[], bool]) -> Task:
        """A new task.

        Args:
            turn: does a bounded part of the work; True when there is more to do. Must not raise.
        """
        return Task(turn)

    def ask(self, task: Task) -> None:
        """Have a turn of a task run soon; never blocks."""
        with self._wake:
            if task.wanted:
                return
            task.wanted = True
            if not task.busy:
                self._queue(task)

    def run_here(self, task: Task) -> bool:
        """Run a turn on this thread, unless one runs already; whether it ran."""
        with self._wake:
            if task.busy or task.wanted:
                return False
            task.busy = True
        self._turn(task)
        return True

    def help(self) -> float | None:
        """Start a thread more if work waits and all are stuck; seconds until it is worth to ask again, or None."""
        with self._wake:
            if len(self._waiting) <= self._idle:
                return None
            if time.monotonic() - self._taken_at >= STUCK_S:
                self._start()
            return STUCK_S

    def dismiss(self) -> None:
        """No more work is expected: let idle threads go, and others when they would be idle."""
        self._expect(False)

    def recall(self) -> None:
        """Work is expected again."""
        self._expect(True)

    def join(self, timeout_s: float) -> None:
        """After `dismiss`: wait until all threads are gone, or until the time is over."""
        with self._none_left:
            self._none_left.wait_for(lambda: self._threads == 0, timeout_s)

    def _expect(self, work: bool) -> None:
        with self._wake:
            self._may_idle = work
            self._wake.notify_all()

    def _queue(self, task: Task) -> None:
        self._waiting.append(task)
        # one that was woken counts as idle until it runs
        if self._idle < len(self._waiting) and self._threads < USUAL:
            self._start()
        elif self._idle:
            self._wake.notify()

    def _start(self) -> None:
        self._taken_at = time.monotonic()
        self._threads += 1
        threading.Thread(target=self._work, name=f"worker of {self._name}", daemon=True).start()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            self._turn(task)

    def _next(self) -> Task | None:
        with self._wake:
            deadline = time.monotonic() + IDLE_S
            while not self._waiting:
                self._idle += 1
                if self._may_idle:
                    self._wake.wait(deadline - time.monotonic())
                self._idle -= 1
                if not self._waiting and not (self._may_idle and time.monotonic() < deadline):
                    self._threads -= 1
                    self._none_left.notify_all()
                    return None
            task = self._waiting.popleft()
            self._taken_at = time.monotonic()
            task.wanted, task.busy = False, True
            return task

    def _turn(self, task: Task) -> None:
        more = task.turn()
        with self._wake:
            task.busy = False
            if more or task.wanted:
                task.wanted = True
                self._queue(task)
