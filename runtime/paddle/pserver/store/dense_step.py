# SPDX-License-Identifier: Apache-2.0
"""Computes a step on dense blocks: the sum of all trainers' gradients, or new values in a separate array.

Large gradients are added on several cores, piece by piece; pieces are independent, so the result does not depend on the
number of cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.store.gradient import Slab
from paddle.pserver.wire.arithmetic import Descent, descend
from paddle.pserver.wire.message import Section
from paddle.pserver.wire.placement import DenseShare
from paddle.pserver.wire.shared_memory import SharedArray
from paddle_node.contract.classes import NamedTuple

T = TypeVar("T")

_MOST = 4  # beyond it memory is the limit
_PIECE = 1 << 19
"""Elements that one thread processes at a time: a compromise between overhead and threads that finish together."""


class DoubleBuffer:
    """A pair of arrays (size,) float32, initially zero, that can be swapped.

    Attributes:
        now: the current values.
        later: sums of gradients, or values after the step in progress.
    """

    def __init__(self, size: int) -> None:
        self.now: Slab = np.zeros(size, np.float32)
        self.later: Slab = np.zeros(size, np.float32)
        self.number = 0
        self._shared: list[SharedArray] = []

    def swap(self) -> None:
        """Exchange the two arrays, so that the values that the step computed become current."""
        self.now, self.later = self.later, self.now
        self.number = 1 - self.number

    def share(self) -> list[SharedArray]:
        """Move the arrays to memory that other processes can map, and return it; `number` is the part that `now` uses.

        References to the old arrays keep the old values.

        Raises:
            MemoryError: there is not enough memory.
        """
        if not self._shared:
            first, second = SharedArray(self.now.size), SharedArray(self.now.size)
            # One after the other: the old memory of one is free before that of the next one is touched.
            first.array[...] = self.now
            self.now = first.array
            second.array[...] = self.later
            self.later = second.array
            self._shared, self.number = [first, second], 0
        return self._shared


class DenseThreads:
    """A pool of threads that start at the first call with several pieces and end with this object. Not thread-safe.

    Attributes:
        count: number of threads working at a time, including the caller.
    """

    def __init__(self, count: int | None = None) -> None:
        """Prepare without starting threads.

        Args:
            count: the number of threads; None means the number of this process's cores, up to a limit.
        """
        self.count = count or min(len(os.sched_getaffinity(0)), _MOST)
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[int, int], T], pieces: int) -> list[T]:
        """Call `work(worker, piece)` for every piece, in any order; return the results, or raise the first error.

        No two simultaneous calls have the same `worker`, 0 to `count` - 1.
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


class DenseStep:
    """The step in progress on dense blocks, whose results go to `slabs.later`; has its own threads. Not thread-safe.

    Attributes:
        rate: learning rate of the step.
        is_plain: whether the step computes new values, because the rule has no state and a step can be undone;
            otherwise, it computes sums.
    """

    def __init__(
        self, slabs: DoubleBuffer, parts: Sequence[DenseShare], optimizer: OptimizerSpec, cores: int | None
    ) -> None:
        """Prepare to compute steps.

        Args:
            cores: cores that add whole gradients; None means those of this process, up to a limit.
        """
        self.rate = 0.0
        self._slabs = slabs
        self._plain = plain_parts(parts, optimizer)
        self.is_plain = self._plain is not None
        self._threads = DenseThreads(cores)
        size = slabs.now.size
        # This memory is not touched until more than two gradients are added up.
        self._scratch = [np.empty(min(_PIECE, size), np.float32) for _ in range(self._threads.count)]

    def add(self, span: slice, gradients: Sequence[Slab], worker: int = 0, *, check: bool = False) -> Descent:
        """Add up a span of all gradients in the given order; see `descend`.

        Args:
            span: a range of the slab, at most `_PIECE` elements.
            gradients: this span of each gradient.
            worker: the calling thread.
            check: whether to check that the sum is finite; otherwise, it is assumed to be.
        """
        out = self._slabs.later[span]
        if self._plain is None:
            np.copyto(out, gradients[0])
            for gradient in gradients[1:]:
                out += gradient
            return Descent(None, not check or Section("", out).is_finite)
        is_finite = True
        for part in self._plain:
            eta = self.rate * part.factor
            if part.start <= span.start and span.stop <= part.stop:
                return descend(self._slabs.now[span], gradients, eta, out, self._scratch[worker], check=check)
            start, stop = max(part.start, span.start), min(part.stop, span.stop)
            if start < stop:
                within = slice(start - span.start, stop - span.start)
                theirs = [gradient[within] for gradient in gradients]
                found = descend(
                    self._slabs.now[start:stop], theirs, eta, out[within], self._scratch[worker], check=check
                )
                is_finite = is_finite and found.is_finite
        return Descent(None, is_finite)

    def add_whole(self, gradients: Sequence[Slab]) -> bool:
        """Add up whole gradients on several cores; return whether the sum is finite."""
        size = self._slabs.now.size

        def add_piece(worker: int, index: int) -> bool:
            piece = slice(index * _PIECE, min((index + 1) * _PIECE, size))
            with np.errstate(over="ignore", invalid="ignore"):
                return self.add(piece, [slab[piece] for slab in gradients], worker, check=True).is_finite

        return all(self._threads.run(add_piece, -(-size // _PIECE)))


_RULES = ("momentum", "sgd")  # their rate is the schedule's


class PlainPart(NamedTuple):
    """A part of a slab, elements `start` to `stop`, and the factor of its parameters on the learning rate."""

    start: int
    stop: int
    factor: float


def plain_parts(shares: Sequence[DenseShare], optimizer: OptimizerSpec) -> list[PlainPart] | None:
    """Return the parts of a slab with equal learning rates; None if a rule computes more than w − η g.

    Adjacent parameters with equal factors form one part, so that many small parameters cost no more than one.
    """
    if optimizer.rule not in _RULES or not all(map(_is_plain, (share.parameter for share in shares))):
        return None
    parts: list[PlainPart] = []
    for share in shares:
        start, factor = share.start, share.parameter.learning_rate
        if parts and parts[-1].factor == factor:
            start = parts.pop().start
        parts.append(PlainPart(start, share.stop, factor))
    return parts


def _is_plain(parameter: ParameterSpec) -> bool:
    return not (parameter.momentum or parameter.l1 or parameter.l2 or parameter.clip or parameter.optimizer)
