# SPDX-License-Identifier: Apache-2.0
"""The reactor: reads from all streams of a job on one thread, and writes to them on a few threads.

The reading thread sleeps until bytes arrive, and runs as long as there is a stream. Work that may block (a stream
that has to answer before it can continue reading, all writing, the end of a stream) is done by worker threads.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Protocol

PAUSE_S = 0.02  # interval for checking whether received events have been processed
START_LOOK_S = 0.25
USUAL = 4  # threads; more are started while these are blocked
STUCK_S = 0.1
IDLE_S = 1.0
_WATCHED = select.EPOLLIN | select.EPOLLONESHOT


class Task:
    """A unit of work that runs in turns, never two at the same time; its state belongs to `WorkerThreads`.

    Args:
        turn: function that does a bounded part of the work and returns True if there is more; must not raise.
    """

    def __init__(self, turn: Callable[[], bool]) -> None:
        self.turn = turn
        self.busy = False
        self.wanted = False


class WorkerThreads:
    """A pool of daemon threads that take turns at tasks.

    After IDLE_S without work, all but one exit; after `expect(False)`, all exit.

    One thread remains because the machine may later refuse to start another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._none_left = threading.Condition(self._lock)
        self._waiting: deque[Task] = deque()
        self._threads = 0
        self._idle = 0
        self._taken_at = time.monotonic()
        self._may_idle = True

    def ask(self, task: Task) -> None:
        """Schedule one more turn of the task on a worker thread; return immediately."""
        with self._wake:
            if task.wanted:
                return
            task.wanted = True
            if not task.busy:
                self._queue(task)

    def run_here(self, task: Task) -> bool:
        """Run one turn of a task on the calling thread, unless the task is running or scheduled.

        Return whether it ran.
        """
        with self._wake:
            if task.busy or task.wanted:
                return False
            task.busy = True
        self._turn(task)
        return True

    def help(self) -> float | None:
        """Start another thread if work is waiting and all threads are blocked.

        Return seconds until the next check, or None.
        """
        with self._wake:
            if len(self._waiting) <= self._idle:
                return None
            if time.monotonic() - self._taken_at >= STUCK_S:
                with contextlib.suppress(RuntimeError):
                    self._start()
            return STUCK_S

    def expect(self, work: bool) -> None:
        """Set whether work is expected. If not, threads exit as soon as they are idle.

        Raises:
            RuntimeError: this machine refuses to start the first thread.
        """
        with self._wake:
            self._may_idle = work
            if work and not self._threads:
                self._start()
            self._wake.notify_all()

    def join(self, timeout_s: float) -> None:
        """After `expect(False)`, wait until all threads have exited, or for `timeout_s` seconds."""
        with self._none_left:
            self._none_left.wait_for(lambda: self._threads == 0, timeout_s)

    def _queue(self, task: Task) -> None:
        self._waiting.append(task)
        # a thread that was woken counts as idle until it runs
        if self._idle < len(self._waiting) and self._threads < USUAL:
            with contextlib.suppress(RuntimeError):  # this machine refuses another thread: `help` tries again
                self._start()
        elif self._idle:
            self._wake.notify()

    def _start(self) -> None:
        self._taken_at = time.monotonic()
        threading.Thread(target=self._work, name="reactor worker", daemon=True).start()
        self._threads += 1

    def _work(self) -> None:
        while (task := self._next()) is not None:
            self._turn(task)

    def _next(self) -> Task | None:
        with self._wake:
            deadline = time.monotonic() + IDLE_S
            while not self._waiting:
                self._idle += 1
                if self._may_idle:
                    self._wake.wait(deadline - time.monotonic() if self._threads > 1 else None)
                self._idle -= 1
                is_spare = self._threads > 1 and time.monotonic() >= deadline
                if not self._waiting and (is_spare or not self._may_idle):
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


class Next(Enum):
    """The reactor's next action for a reader after a turn."""

    BYTES = "bytes"  # wake it when more bytes arrive
    PAUSE = "pause"  # poll `can_continue`
    TASK = "task"  # another turn, on a thread where it can block
    NOTHING = "nothing"


class Reader(Protocol):
    """The interface of a stream's reading end, as the reactor uses it."""

    def fileno(self) -> int:
        """Return a descriptor that is readable while there is data to read."""

    def report_to(self, arrived: Callable[[], None]) -> bool:
        """Call `arrived` on any thread whenever there is data to read, or return False: poll `fileno` instead."""

    def may_block(self) -> bool:
        """Return whether the next `read_turn` may block until the peer acts."""

    def read_turn(self) -> Next:
        """Read the available bytes, up to a limit."""

    def can_continue(self) -> bool:
        """Return whether the pause of the reader is over, because its events have been processed."""

    def waits_until(self) -> float | None:
        """Return the monotonic time at which `read_turn` is due even without bytes, or None."""


class _Watched:
    """A reader with its task, and the descriptor that is polled for it, if any."""

    def __init__(self, reader: Reader, task: Task) -> None:
        self.reader = reader
        self.fd = -1
        self.task = task
        self.is_paused = False


class Reactor:
    """Reads from any number of streams, and writes to them, on a few threads."""

    def __init__(self) -> None:
        self._workers = WorkerThreads()
        self._lock = threading.Lock()
        self._watched: dict[Reader, _Watched] = {}
        self._polled: dict[int, _Watched] = {}
        self._paused: list[_Watched] = []
        self._due: list[_Watched] = []
        self._thread: threading.Thread | None = None
        self._poll = select.epoll()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poll.register(self._wake_read, select.EPOLLIN)

    def __del__(self) -> None:
        for close in (
            self._poll.close,
            lambda: os.close(self._wake_read),
            lambda: os.close(self._wake_write),
        ):
            with contextlib.suppress(OSError):
                close()

    def watch(self, reader: Reader) -> Callable[[], None]:
        """Start reading from a stream: call the reader whenever there is data.

        Returns:
            A function that runs the reader's last turn, on a thread that may block.
        """
        watched: _Watched
        watched = _Watched(reader, Task(lambda: self._turn(watched)))
        with self._lock:
            if self._thread is None:
                self._workers.expect(True)
                thread = threading.Thread(target=self._run, name="read nodes", daemon=True)
                thread.start()
                self._thread = thread
            self._watched[reader] = watched
            if reader.waits_until() is not None:
                self._due.append(watched)
            if not reader.report_to(lambda: self._arrived(watched)):
                watched.fd = reader.fileno()
                self._polled[watched.fd] = watched
                self._poll.register(watched.fd, _WATCHED)
        self._nudge()
        return lambda: self.ask(watched.task)

    def ask(self, task: Task) -> None:
        """Schedule one more turn of the task on a worker thread; return immediately."""
        self._workers.ask(task)
        self._help()

    def forget(self, reader: Reader) -> None:
        """Stop watching a reader, before its descriptor is closed."""
        with self._lock:
            watched = self._watched.pop(reader, None)
            if watched is not None and watched.fd in self._polled:
                del self._polled[watched.fd]
                with contextlib.suppress(OSError):
                    self._poll.unregister(watched.fd)
        self._nudge()

    def join(self, timeout_s: float) -> None:
        """Wait until all streams and their threads have ended, or for `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        self._workers.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            ready = self._poll.poll(self._wait_s())
            for fd, _ in ready:
                watched = self._polled.get(fd)
                if watched is not None:
                    self._read(watched)
                elif fd == self._wake_read:
                    self._woken()
            if self._paused:
                self._resume_paused()
            if self._due:
                self._run_due()
            with self._lock:
                if not self._watched:
                    self._thread = None
                    self._workers.expect(False)
                    return

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._wake_read, 4096)) == 4096:
                pass

    def _arrived(self, watched: _Watched) -> None:
        if not watched.is_paused:
            self._read(watched)

    def _read(self, watched: _Watched) -> None:
        if watched.reader.may_block() or not self._workers.run_here(watched.task):
            self._workers.ask(watched.task)
        self._help()  # a turn that ran here may have queued another

    def _help(self) -> None:
        """Wake the reactor if work waits: it starts another worker if all are blocked."""
        if self._workers.help() is not None:
            self._nudge()

    def _turn(self, watched: _Watched) -> bool:
        wanted = watched.reader.read_turn()
        if wanted is Next.PAUSE:
            with self._lock:
                if not watched.is_paused:
                    watched.is_paused = True
                    self._paused.append(watched)
            if threading.current_thread() is not self._thread:
                self._nudge()
        elif wanted is Next.BYTES:
            with self._lock:
                if self._polled.get(watched.fd) is watched:
                    self._poll.modify(watched.fd, _WATCHED)
        return wanted is Next.TASK

    def _resume_paused(self) -> None:
        with self._lock:
            paused, self._paused = self._paused, []
        for watched in paused:
            if watched.reader not in self._watched:
                continue
            if watched.reader.can_continue():
                watched.is_paused = False
                self._read(watched)
            else:
                with self._lock:
                    self._paused.append(watched)

    def _run_due(self) -> None:
        with self._lock:
            due, self._due = self._due, []
        now = time.monotonic()
        for watched in due:
            until = watched.reader.waits_until()
            if until is None or watched.reader not in self._watched:
                continue
            if now >= until:
                self._workers.ask(watched.task)
            else:
                with self._lock:
                    self._due.append(watched)

    def _wait_s(self) -> float | None:
        stuck_s = self._workers.help()
        waits = [] if stuck_s is None else [stuck_s]
        if self._paused:
            waits.append(PAUSE_S)
        if self._due:
            waits.append(START_LOOK_S)
        return min(waits, default=None)

    def _nudge(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"x")
