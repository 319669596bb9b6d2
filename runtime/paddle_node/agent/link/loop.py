# SPDX-License-Identifier: Apache-2.0
"""A single-threaded event loop for descriptors, timers, child processes, and long work in slices.

Timers use the monotonic clock. Input is handled before timers, so that a machine that was suspended past a deadline
first processes the input that has arrived.
"""

from __future__ import annotations

import heapq
import math
import os
import select
import signal
import time
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

LONGEST_WAIT_S = 3600.0  # poll takes a 32-bit number of milliseconds
_EVENTS = (select.POLLIN, select.POLLOUT)
SLICE_S = 0.01  # how long long work may run before the loop checks for events again

Callback = Callable[[], object]


class Timer:
    """A callback that is due at a time of the monotonic clock; `Loop.after` creates it."""

    def __init__(self, due: float, callback: Callback) -> None:
        self.due = due
        self.callback: Optional[Callback] = callback

    def cancel(self) -> None:
        """Cancel the timer, so that its callback is not called."""
        self.callback = None

    def fire(self) -> None:
        """Call the callback now, and not again when it is due."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class Loop:
    """A single-threaded event loop, which runs callbacks until `stop` on the thread that called `run`."""

    def __init__(self) -> None:
        self._poll = select.poll()  # not epoll: standard input may be a regular file
        self._polled: Set[int] = set()
        self._timers: List[Tuple[float, int, Timer]] = []
        self._count = 0
        self._work: List[Iterator[None]] = []
        self._chores: List[Iterator[None]] = []
        self._children: Dict[int, Callable[[int], None]] = {}
        self._callbacks: Dict[Tuple[int, int], Callback] = {}
        self._signals: List[int] = []
        self._on_signal: Dict[int, Callback] = {}
        self._stopped = False
        self._last: Optional[List[Callback]] = None  # a list while `run` handles events
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self.on_signal(signal.SIGCHLD, self.reap)
        self.on_readable(self._wake_read, self._woken)

    def on_readable(self, fd: int, callback: Optional[Callback]) -> None:
        """Call `callback` whenever `fd` has input or has reached its end; None removes the callback."""
        self._watch(fd, select.POLLIN, callback)

    def on_writable(self, fd: int, callback: Optional[Callback]) -> None:
        """Call `callback` whenever `fd` accepts output; None removes the callback."""
        self._watch(fd, select.POLLOUT, callback)

    def on_exit(self, pid: int, callback: Callable[[int], None]) -> None:
        """Call `callback` once with the wait status of a child process, when it exits."""
        self._children[pid] = callback

    def on_signal(self, number: int, callback: Callback) -> None:
        """Call `callback` after a signal, between other callbacks; signals that arrive together may cause one call."""
        self._on_signal[number] = callback
        signal.signal(number, lambda *_: self._signals.append(number))

    def after(self, delay_s: float, callback: Callback) -> Timer:
        """Call `callback` once, `delay_s` seconds from now; return the timer, which can be cancelled."""
        timer = Timer(time.monotonic() + delay_s, callback)
        self._count += 1
        heapq.heappush(self._timers, (timer.due, self._count, timer))
        return timer

    def last(self, callback: Callback) -> None:
        """Call `callback` when the current events have been handled; immediately, if `run` is not handling any."""
        if self._last is None:
            callback()
        else:
            self._last.append(callback)

    def work(self, steps: Iterator[None]) -> None:
        """Run a generator to its end, one slice at a time; generators run in the given order."""
        self._work.append(steps)

    def chore(self, steps: Iterator[None]) -> None:
        """Run a generator like `work`, but only while no work is waiting."""
        self._chores.append(steps)

    @property
    def has_chores(self) -> bool:
        """Return whether a chore has not ended yet."""
        return bool(self._chores)

    def reap(self) -> None:
        """Reap every child process that has exited, and call its callback."""
        # -1: orphans of the job become our children too, and must not stay zombies
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            callback = self._children.pop(pid, None)
            if callback is not None:
                callback(status)

    def stop(self) -> None:
        """Make `run` return after the current callback."""
        self._stopped = True

    def run(self) -> None:
        """Handle events until `stop`."""
        while not self._stopped:
            wait_s = self._wait_s()
            ready = self._poll.poll(None if wait_s is None else math.ceil(wait_s * 1000))
            self._last = []
            for fd, events in ready:
                self._handle(fd, events)
            self._fire()
            self._work_a_slice()
            last, self._last = self._last, None
            for callback in last:
                callback()

    def _watch(self, fd: int, event: int, callback: Optional[Callback]) -> None:
        if callback is None:
            self._callbacks.pop((fd, event), None)
        else:
            self._callbacks[fd, event] = callback
        events = sum(each for each in _EVENTS if (fd, each) in self._callbacks)
        if events:
            self._poll.register(fd, events)
            self._polled.add(fd)
        elif fd in self._polled:
            self._poll.unregister(fd)
            self._polled.remove(fd)

    def _handle(self, fd: int, events: int) -> None:
        is_over = events & ~sum(_EVENTS)  # the end or an error, which the next call on it reports
        for event in _EVENTS:
            callback = self._callbacks.get((fd, event)) if is_over or events & event else None
            if callback is not None:
                callback()

    def _wait_s(self) -> Optional[float]:
        if self._work or self._chores or self._stopped:
            return 0.0
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return min(max(0.0, self._timers[0][0] - time.monotonic()), LONGEST_WAIT_S)

    def _fire(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2].fire()

    def _work_a_slice(self) -> None:
        end = time.monotonic() + SLICE_S
        while (waiting := self._work or self._chores) and time.monotonic() < end:
            try:
                next(waiting[0])
            except StopIteration:
                waiting.pop(0)

    def _woken(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass
        received, self._signals = self._signals, []
        for number in sorted(set(received)):
            self._on_signal[number]()
