# SPDX-License-Identifier: Apache-2.0
"""The threads that all operators share to compute parts of one operator's work on several cores.

The threads belong to the process, since executors on all threads run operators. The calling thread works too, and takes
pieces that no thread has started. While another operator uses the threads, the caller does all of its work itself. A
piece must therefore give the same result in every thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from paddle.env import compute_threads


class ComputeThreads:
    """A pool of worker threads, started by the first call with several pieces.

    They end with the process or on `resize`.
    """

    def __init__(self, count: int | None = None) -> None:
        """Create the pool without starting threads.

        Args:
            count: the number of threads that work simultaneously, including the caller; None means the value of
                `env.compute_threads` at first use.
        """
        self._count = count
        self._free = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def count(self) -> int:
        """The number of threads that work simultaneously."""
        if self._count is None:
            self._count = compute_threads()
        return self._count

    def resize(self, count: int | None) -> None:
        """Set the number of threads; existing threads end after their current piece."""
        with self._free:
            if self._pool is not None:
                self._pool.shutdown(wait=True)
            self._pool, self._count = None, count

    def run(self, work: Callable[[int], None], pieces: int) -> None:
        """Call `work(piece)` for every piece, in any order, and in parallel where it releases the GIL."""
        rest = iter(range(pieces))

        def take_turns() -> None:
            for piece in rest:
                work(piece)

        if pieces < 2 or not self._free.acquire(blocking=False):
            take_turns()
            return
        try:
            helpers = self._helpers(take_turns, pieces - 1)
            try:
                take_turns()
            finally:
                working = [helper for helper in helpers if not helper.cancel()]
                failures = [helper.exception() for helper in working]
        finally:
            self._free.release()
        for failure in failures:
            if failure is not None:
                raise failure

    def _helpers(self, work: Callable[[], None], most: int) -> list[Future[None]]:
        if self.count < 2:
            return []
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count - 1, thread_name_prefix="paddle-compute")
        return [self._pool.submit(work) for _ in range(min(self.count - 1, most))]

    def forget(self) -> None:
        """Drop all threads: a forked child has none of its parent's threads, and may have inherited a held lock."""
        self._free = threading.Lock()
        self._pool = None


COMPUTE = ComputeThreads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=COMPUTE.forget)
