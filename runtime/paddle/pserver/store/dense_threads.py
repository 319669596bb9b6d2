# SPDX-License-Identifier: Apache-2.0
"""Several cores for what happens to large arrays, piece by piece; pieces are independent, so no number depends on it.

Whoever asks works too, and takes back what no thread has begun: cores that others use cost nothing but their help.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_MOST = 4  # beyond it memory is the limit


class DenseThreads:
    """Threads that begin with the first work of several pieces, and end with this object. For one caller at a time.

    Attributes:
        count: how many work at once, whoever asks among them.
    """

    def __init__(self, count: int | None = None) -> None:
        """Begin nothing yet.

        Args:
            count: None for as many as this process has cores, within reason.
        """
        self.count = count or min(len(os.sched_getaffinity(0)), _MOST)
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[int, int], T], pieces: int) -> list[T]:
        """Call `work(worker, piece)` for every piece, in any order; return what it gave.

        No two calls at a time have the same `worker`, 0 to `count` - 1.
        """
        found: dict[int, T] = {}
        rest = iter(range(pieces))

        def take_turns(worker: int) -> None:
            for piece in rest:
                found[piece] = work(worker, piece)

        helpers = self._helpers(take_turns, min(self.count, pieces) - 1)
        try:
            take_turns(0)
        finally:
            working = [helper for helper in helpers if not helper.cancel()]
            failures = [helper.exception() for helper in working]
        for failure in failures:
            if failure is not None:
                raise failure
        return [found[piece] for piece in range(pieces)]

    def _helpers(self, work: Callable[[int], None], count: int) -> list[Future[None]]:
        if count < 1:
            return []
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count - 1, thread_name_prefix="pserver-dense")
        return [self._pool.submit(work, worker) for worker in range(1, count + 1)]
