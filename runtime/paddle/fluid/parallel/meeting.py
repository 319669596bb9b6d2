# SPDX-License-Identifier: Apache-2.0
"""Meeting: collective operations over the places of all trainers (sum, gather) in the middle of a pass.

All places must call the same operations in the same order. If a place fails, or calls a different operation than the
first place, all waits end with an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from paddle.backend import Array, from_host, to_host
from paddle.collective.ranks import Ranks
from paddle.ops.base.errors import OpError


class Meeting:
    """Collective operations among the places of one trainer, one thread each, and the group of all trainers.

    See `ops.base.body.Peers`.

    Attributes:
        group: the group of all trainers; None if there is only one.
    """

    def __init__(self, places: int) -> None:
        self.group: Ranks | None = None
        self._places = places
        self._barrier = threading.Barrier(places)
        self._given: list[Any] = [None] * places
        self._result: Any = None
        self._number = threading.local()

    def run(self, passes: Sequence[Callable[[], list[Any]]]) -> list[list[Any]]:
        """Run the passes of all places in parallel threads; return their results, or raise the first error."""
        if len(passes) == 1:
            return [passes[0]()]
        self._barrier.reset()
        with ThreadPoolExecutor(len(passes), thread_name_prefix="places") as threads:
            runs = [threads.submit(self._run, number, each) for number, each in enumerate(passes)]
        errors = [error for run in runs if (error := run.exception()) is not None]
        for error in errors:
            if not isinstance(error.__cause__ or error, threading.BrokenBarrierError):
                raise error
        return [run.result() for run in runs]

    def total(self, value: Array) -> Array:
        """Return the sum of all places' values, which are added in the order of places."""
        return self._together(value, self._summed)

    def gather(self, value: Array) -> list[Array]:
        """Return the values of all places, ordered by trainer and then by place."""
        found: list[Array] = self._together(value, self._gathered)
        return found

    def _run(self, number: int, each: Callable[[], list[Any]]) -> list[Any]:
        self._number.value = number
        try:
            found = each()
            self._together(None, self._ended)
            return found
        except BaseException:
            self._barrier.abort()
            raise

    def _together(self, value: Any, combine: Callable[[list[Any]], Any]) -> Any:
        if self._places == 1:
            return combine([value])
        number = self._number.value
        self._given[number] = combine.__name__, value
        self._barrier.wait()
        if number == 0:
            self._check_equal()
            self._result = combine([value for _, value in self._given])
        self._barrier.wait()
        return self._result

    def _check_equal(self) -> None:
        """Raise OpError unless all places call the operation that the first one calls, or have all ended."""
        first = self._given[0][0]
        for number, (name, _) in enumerate(self._given):
            if name != first:
                raise OpError(
                    f"place 0 and place {number} of a data-parallel program do not run the same allreduce, broadcast "
                    "and sync_batch_norm operators: none of them may depend on a condition that differs between places"
                )

    def _ended(self, values: list[Any]) -> None:
        """Do nothing: all places have ended their pass."""

    def _summed(self, values: list[Array]) -> Array:
        total = values[0]
        for value in values[1:]:
            total = total + value
        if self.group is not None:
            total = self._sent(total, total.shape)
            self.group.all_reduce(total)
        return total

    def _gathered(self, values: list[Array]) -> list[Array]:
        if self.group is None:
            return [*values]
        whole = self.group.device.module().zeros(
            (self.group.size, len(values), *values[0].shape), values[0].dtype
        )
        for at, value in enumerate(values):
            whole[self.group.rank, at] = self._sent(value, value.shape)
        self.group.all_reduce(whole)
        return [from_host(to_host(each), values[0]) for row in whole for each in row]

    def _sent(self, value: Array, shape: tuple[int, ...]) -> Array:
        """Return a copy of a value on the device of the group."""
        assert self.group is not None
        held = self.group.device.module().empty(shape, value.dtype)
        held[...] = value if self.group.device.is_gpu else to_host(value)
        return held
