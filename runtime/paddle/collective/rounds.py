# SPDX-License-Identifier: Apache-2.0
"""The rounds of model averaging: a background thread adds the ranks' mean progress to a base, equal on all ranks.

A rank's arrays are the base plus the rank's progress since it last posted any. In a round, the posted progress of all
ranks is summed and divided by their number; the result is added to the base, which stays bit-equal on all ranks. A rank
that has posted nothing contributes zeros, so no rank waits for the steps of other ranks. Invariant for each element
while the lock is free: array + moved = base + progress that the base does not include yet.

A rank without batches continues to participate until no rank has batches (they settle), or until all ranks leave.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.backend import Array, from_host, to_host
from paddle.collective.errors import CollectiveError, PeerLate
from paddle.collective.group import Group
from paddle.errors import ConfigError

_PART = 1 << 20  # elements that are summed at a time; bounds the memory of a round in addition to the arrays
_STANCE, _GIVES = 0, 1
_ENDING_S = 10.0  # the time in which the thread reports why it ends

Flat = npt.NDArray[Any]


class Stance(IntEnum):
    """Whether a rank trains, has run out of batches, or leaves."""

    TRAINING = 0
    WAITING = 1
    LEAVING = 2


class _Flat:
    """All arrays of one dtype, concatenated."""

    def __init__(self, arrays: Sequence[Array], numbers: Sequence[int]) -> None:
        hosts = [to_host(arrays[number]) for number in numbers]
        self.base: Flat = np.concatenate([host.ravel() for host in hosts])
        self.delta, self.moved = np.zeros_like(self.base), np.zeros_like(self.base)
        cuts = np.cumsum([0, *(host.size for host in hosts)]).tolist()
        self._places = [
            (number, slice(*cut), host.shape)
            for number, cut, host in zip(numbers, pairwise(cuts), hosts, strict=True)
        ]

    def views(self, flat: Flat) -> Iterator[tuple[int, Flat]]:
        """Yield the number of each array, and its part of `flat`, reshaped."""
        for number, cut, shape in self._places:
            yield number, flat[cut].reshape(shape)


class Rounds:
    """One rank's side of the averaging rounds.

    The background thread calls `serve`, the training thread all other methods.
    """

    def __init__(self, group: Group, arrays: Sequence[Array], states: Sequence[Array], waits: bool) -> None:
        """Replace the arrays by those of rank 0, the first base.

        Raises:
            CollectiveError: a rank is lost, late or running a different program.
            ConfigError: an array is not floating-point.
        """
        self._group, self._waits = group, waits
        by_dtype: dict[np.dtype[Any], list[int]] = {}
        for number, array in enumerate(arrays):
            if array.dtype.kind != "f":
                raise ConfigError(f"averages: expected floating-point arrays, got dtype {array.dtype}")
            by_dtype.setdefault(array.dtype, []).append(number)
        self._flats = [_Flat(arrays, numbers) for numbers in by_dtype.values()]
        self._states = [np.zeros(state.shape, state.dtype) for state in states]
        self._changed = threading.Condition()
        self._stance = Stance.TRAINING
        self._number, self._settled, self._progress, self._over = 1, 0, 0, False
        self._posted = self._gives = self._has_moved = self._untaken = False
        self._table = np.zeros((group.size, 2), np.int64)
        self._giving_up: CollectiveError | None = None
        self.error: BaseException | None = None
        for flat in self._flats:
            group.broadcast(flat.base)
        self.put_base(arrays)
        self._wake_up = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def serve(self) -> None:
        """Take part in rounds until all ranks leave, or an error occurs."""
        try:
            while self._await_turn():
                self._round()
        except BaseException as error:  # noqa: BLE001 - raised again where the rank trains
            if not isinstance(error, CollectiveError):
                rank = self._group.rank
                error = self._group.fail(
                    CollectiveError(f"rank {rank} failed while averaging: {error!r}", rank)
                )
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def take(self, arrays: Sequence[Array]) -> None:
        """Add the change of the common base since the last call to the arrays, in place.

        Raises:
            CollectiveError: a rank is lost, late or running a different program.
        """
        self._check()
        if self._has_moved:
            with self._changed:
                for flat in self._flats:
                    for number, view in flat.views(flat.moved):
                        arrays[number][...] += from_host(view, arrays[number])
                    flat.moved[...] = 0
                self._has_moved = False

    def post(self, arrays: Sequence[Array], stance: Stance, has_progress: bool = True) -> None:
        """Post this rank's progress since its last post for the next round.

        Waits until the base includes the previous post.
        """
        self.await_base()
        self.take(arrays)
        with self._changed:
            if has_progress:
                for flat in self._flats:
                    deltas = dict(flat.views(flat.delta))
                    for number, base in flat.views(flat.base):
                        # A round between `take` and here moved both sides: `moved` belongs to the array.
                        np.subtract(to_host(arrays[number]), base, out=deltas[number])
                    flat.delta += flat.moved
            self._posted, self._gives, self._stance = True, has_progress, stance
        os.eventfd_write(self._wake_up, 1)

    def await_base(self) -> None:
        """Block until the common base includes the progress that this rank has posted."""
        self._wait(lambda: not self._posted)

    def put_base(self, arrays: Sequence[Array]) -> None:
        """Copy the base into the arrays; progress that was not posted is discarded."""
        with self._changed:
            for flat in self._flats:
                flat.moved[...] = 0
                for number, view in flat.views(flat.base):
                    arrays[number][...] = from_host(view, arrays[number])
            self._has_moved = self._untaken = False
            self._changed.notify_all()

    def settle(self, arrays: Sequence[Array], states: Sequence[Array], has_progress: bool) -> None:
        """Wait until every rank has called this or left; arrays are then equal, and states averaged, on all ranks."""
        for mine, state in zip(self._states, states, strict=True):
            mine[...] = to_host(state)
        settled = self._settled
        self.post(arrays, Stance.WAITING, has_progress)
        self._wait(lambda: self._settled > settled)
        self.put_base(arrays)
        for mine, state in zip(self._states, states, strict=True):
            state[...] = from_host(mine, state)

    def leave(self, arrays: Sequence[Array], has_progress: bool) -> None:
        """Announce that this rank leaves, after posting its progress, and wait until all ranks leave."""
        self.post(arrays, Stance.LEAVING, has_progress)
        self._wait(lambda: self._over)

    def give_up(self, error: CollectiveError) -> None:
        """End the group on all ranks, because this rank failed."""
        with self._changed:
            self._giving_up = error
            self._changed.notify_all()
        os.eventfd_write(self._wake_up, 1)

    def close(self) -> None:
        """Close the group, after the background thread has ended."""
        self._group.close()
        os.close(self._wake_up)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _wait(self, done: Callable[[], bool]) -> None:
        """Wait until `done`, as long as rounds continue."""
        patience_s = self._group.timeout_s
        late: PeerLate | None = None
        with self._changed:
            while not done() and self.error is None:
                before = self._progress
                self._changed.wait_for(lambda: self._progress != before or self.error is not None, patience_s)  # noqa: B023
                if self._progress == before and self.error is None:
                    if late is not None:
                        raise late
                    late, patience_s = self._late(), _ENDING_S
                    self.give_up(late)
        self._check()

    def _late(self) -> PeerLate:
        training = np.flatnonzero(self._table[:, _STANCE] == Stance.TRAINING)
        others = [int(rank) for rank in training if rank != self._group.rank]
        names = ", ".join(map(self._group.name, others)) or "other ranks"
        return PeerLate(
            f"no rank has made a step for {self._group.timeout_s:g} s, and {names} did not join "
            "the average of all ranks. It may be busy or frozen; PADDLE_COLLECTIVE_TIMEOUT_S "
            "sets the timeout",
            others[0] if others else None,
        )

    def _await_turn(self) -> bool:
        """Wait for the next round; return False if there is none because all ranks have left."""
        while True:
            with self._changed:
                # Other ranks may continue immediately, so the settled base must be copied before it moves again.
                self._changed.wait_for(
                    lambda: not self._untaken or self._giving_up is not None, self._group.timeout_s
                )
                over, wanted = self._over, self._posted
                takes_part = wanted or (self._waits and self._stance != Stance.TRAINING)
            if self._giving_up is not None:
                raise self._group.fail(self._giving_up)
            if over:
                return False
            if wanted and not self._waits:
                self._group.call(self._number)
            if takes_part or self._group.called >= self._number:
                return True
            self._group.await_call(self._number, self._wake_up)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_up)

    def _round(self) -> None:
        with self._changed:
            stance, posted = self._stance, self._posted
        table = np.zeros((self._group.size, 2), np.int64)
        table[self._group.rank] = stance, posted and self._gives
        self._group.all_reduce(table)
        givers = np.flatnonzero(table[:, _GIVES]).tolist()
        if givers:
            for flat in self._flats:
                for start in range(0, flat.base.size, _PART):
                    self._sum(flat, slice(start, start + _PART), givers)
        settled = bool((table[:, _STANCE] != Stance.TRAINING).all())
        if settled:
            self._sum_states(stance, int((table[:, _STANCE] == Stance.WAITING).sum()))
        with self._changed:
            self._number += 1
            self._progress += 1
            self._table = table
            if posted:
                self._posted = False
            if settled:
                self._settled += 1
                self._untaken = stance == Stance.WAITING
                self._stance = Stance.TRAINING if stance == Stance.WAITING else stance
            self._over = bool((table[:, _STANCE] == Stance.LEAVING).all())
            self._changed.notify_all()

    def _sum(self, flat: _Flat, part: slice, givers: Sequence[int]) -> None:
        gives = self._group.rank in givers
        work = flat.delta[part].copy() if gives else np.zeros_like(flat.delta[part])
        if len(givers) == 1:
            self._group.broadcast(work, givers[0])
        else:
            self._group.all_reduce(work)
        work /= self._group.size
        with self._changed:
            flat.base[part] += work
            flat.moved[part] += work
            if gives:
                flat.moved[part] -= flat.delta[part]
            self._has_moved = True
            self._progress += 1
            self._changed.notify_all()

    def _sum_states(self, stance: Stance, count: int) -> None:
        """Replace the states of the waiting ranks by their means."""
        if not count:
            return
        waiting = stance == Stance.WAITING
        sums = [mine.copy() if waiting else np.zeros_like(mine) for mine in self._states]
        for dtype in sorted({each.dtype.str for each in sums}):
            self._group.all_reduce([each for each in sums if each.dtype.str == dtype])
        if waiting:
            for mine, total in zip(self._states, sums, strict=True):
                np.divide(total, count, out=mine)
