# SPDX-License-Identifier: Apache-2.0
"""Model averaging: every rank trains its own copy of the arrays, which are regularly averaged over all ranks.

Every `k_steps` steps a rank posts its progress, and a background thread exchanges it. Asynchronous ranks (the default)
apply the average at the end of the first step after it arrives. They never wait for another rank's steps, only for an
exchange that takes longer than `k_steps` steps. With `waits`, ranks stop at each average until all of them have reached
it (local SGD).
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from paddle.backend import Array
from paddle.collective.errors import CollectiveError
from paddle.collective.group import Group
from paddle.collective.rounds import Rounds, Stance
from paddle.errors import ConfigError
from paddle.threads import ServiceThread

_JOIN_S = 10.0


class Averages:
    """One rank's side of model averaging. Every rank creates one at the same time. Not thread-safe.

    Ranks may have different numbers of batches: a rank that finishes early takes part in exchanges until all ranks have
    finished. A rank that ends with an exception reports it to all others.
    """

    def __init__(
        self,
        group: Group,
        arrays: Sequence[Array],
        states: Sequence[Array] = (),
        *,
        k_steps: int = 1,
        waits: bool = False,
    ) -> None:
        """Copy rank 0's arrays to all ranks and start averaging.

        Args:
            group: used by this object alone from now on, and closed with it.
            arrays: floating-point arrays, with the same lengths and dtypes on all ranks; every method changes them in
                place.
            states: floating-point arrays that only `settle` replaces with their means over all ranks.
            k_steps: the number of steps between averages, 1 or more.
            waits: whether a rank waits for all others at each average.

        Raises:
            ConfigError: k_steps is less than 1, or an array is not floating-point.
            CollectiveError: a rank is lost, late or running a different program.
        """
        if k_steps < 1:
            raise ConfigError(f"k_steps: expected 1 or more steps between averages, got {k_steps}")
        self._k_steps, self._waits = k_steps, waits
        self._last = _Last(list(arrays))
        self._rounds = Rounds(group, arrays, states, waits)
        self._rank = group.rank
        thread = ServiceThread(self._rounds.serve, name="averages")
        self._finalizer = weakref.finalize(self, _end, self._rounds, thread, self._last, group.rank)

    def step(self, arrays: Sequence[Array]) -> None:
        """Record a finished step; apply the average to the arrays, in place, if one has arrived.

        Raises:
            CollectiveError: a rank is lost, late or running a different program; every later call raises it again.
        """
        self._check()
        self._last.arrays = list(arrays)
        self._last.steps += 1
        if self._last.steps < self._k_steps:
            self._rounds.take(arrays)
            return
        self._rounds.post(arrays, Stance.TRAINING)
        self._last.steps = 0
        if self._waits:
            self._rounds.await_base()
            self._rounds.put_base(arrays)

    def settle(self, arrays: Sequence[Array], states: Sequence[Array] = ()) -> None:
        """Wait until every rank has called this or has ended; the arrays are then bit-equal on all ranks.

        Raises:
            CollectiveError: see `step`.
        """
        self._check()
        self._last.arrays = list(arrays)
        self._rounds.settle(arrays, states, self._last.steps > 0)
        self._last.steps = 0

    def close(self) -> None:
        """Finish training on this rank, and take part in exchanges until all ranks have closed or ended."""
        self._finalizer()

    def fail(self, error: BaseException) -> None:
        """End the averaging on all ranks, because this rank failed."""
        self._last.failure = error
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.fail(error)

    def _check(self) -> None:
        if not self._finalizer.alive:
            raise CollectiveError("these averages are closed: create new ones", self._rank)


class _Last:
    """The progress that a rank has not posted when it ends.

    Attributes:
        arrays: the arrays of the last step.
        steps: the number of steps since progress was last posted.
        failure: why the rank cannot continue.
    """

    def __init__(self, arrays: list[Array]) -> None:
        self.arrays, self.steps = arrays, 0
        self.failure: BaseException | None = None


def _end(rounds: Rounds, thread: ServiceThread[None], last: _Last, rank: int) -> None:
    # If the interpreter ends with an exception, it has already printed that exception.
    failure = last.failure or getattr(sys, "last_value", None)
    try:
        if rounds.error is None and failure is None:
            rounds.leave(last.arrays, last.steps > 0)
    except BaseException as error:
        failure = failure or error
        raise
    finally:
        if rounds.error is None and failure is not None:
            rounds.give_up(CollectiveError(f"rank {rank} has failed: {failure!r}", rank))
        thread.join(_JOIN_S)
        rounds.close()
