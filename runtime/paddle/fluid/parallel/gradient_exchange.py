# SPDX-License-Identifier: Apache-2.0
"""GradientExchange: sums gradients over ranks in buckets, during the backward pass.

The backward pass posts each bucket when its last gradient is computed; a thread sums the buckets in order.
The pass's own thread, which is then idle, sums the last bucket of a step. Dense gradients are copied to buffers that
are reused in every step; selected rows are gathered in the order of the ranks.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

from paddle import graph
from paddle.backend import Device, to_host
from paddle.collective.errors import CollectiveError
from paddle.collective.ranks import Ranks
from paddle.ops.base.selected_rows import SelectedRows
from paddle.threads import ServiceThread
from paddle_node.contract.classes import dataclass

BUCKET_BYTES = 4 << 20
"""The size of a bucket in bytes: the fixed cost of a sum is then negligible, and sums start early in the pass."""


@dataclass(frozen=True)
class Bucket:
    """A group of gradients that are summed together.

    Attributes:
        names: the gradients' names, in the order in which they are computed.
        after: the position of the operator that computes the last of them.
    """

    names: tuple[str, ...]
    after: int


def bucketed(
    ops: Sequence[graph.Operator],
    names: Collection[str],
    nbytes: Mapping[str, int],
    limit: int = BUCKET_BYTES,
) -> list[Bucket]:
    """Group gradients into buckets, in the order of computation.

    Args:
        nbytes: size of each variable in bytes, if known.
        limit: a bucket with at least this number of bytes is full.
    """
    last = {name: at for at, op in enumerate(ops) for name in op.writes if name in names}
    buckets: list[Bucket] = []
    members: list[str] = []
    held = 0
    for name in sorted(last, key=lambda each: (last[each], each)):
        members.append(name)
        held += nbytes.get(name, 0)
        if held >= limit:
            buckets.append(Bucket(tuple(members), last[name]))
            members, held = [], 0
    if members:
        buckets.append(Bucket(tuple(members), last[members[-1]]))
    return buckets


class GradientExchange:
    """Sums the gradients of each step of a program over ranks. Not thread-safe."""

    def __init__(self, group: Ranks, buckets: Sequence[Bucket]) -> None:
        self._group = group
        self._parcels = [_Parcel(bucket.names, group.device) for bucket in buckets]
        self._posted = self._pending = 0
        self._work: SimpleQueue[_Parcel | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        if len(buckets) > 1:
            thread = ServiceThread(partial(_sum_posted, group, self._work, self._done), name="gradients")
            self._finalizer = weakref.finalize(self, _end, self._work, thread)

    def post(self, number: int, values: Sequence[Any]) -> None:
        """Start summing a bucket's gradients; buckets must be posted in order."""
        parcel = self._parcels[number]
        parcel.fill(values)
        self._posted = number + 1
        if self._posted < len(self._parcels):
            self._pending += 1
            self._work.put(parcel)

    def finish(self) -> Mapping[str, Any]:
        """Wait for all sums of the step; return them by name, in arrays that the next step overwrites.

        Raises:
            CollectiveError: a rank is lost, late or running a different program.
        """
        self._wait_for_thread()
        sums: dict[str, Any] = {}
        if self._parcels:
            self._parcels[-1].sum(self._group)
        self._posted = 0
        for parcel in self._parcels:
            sums.update(parcel.values)
        return sums

    def abandon(self, error: BaseException) -> None:
        """End the group of ranks if other ranks are waiting for a step that failed on this rank."""
        if self._posted:
            with contextlib.suppress(Exception):  # posted gradients come first: the thread uses the group
                self._wait_for_thread()
            self._group.fail(
                CollectiveError(
                    f"rank {self._group.rank} failed in the middle of a step: {error}", self._group.rank
                )
            )

    def close(self) -> None:
        """Stop the thread that sums the buckets."""
        if len(self._parcels) > 1:
            self._finalizer()

    def _wait_for_thread(self) -> None:
        errors = [self._done.get() for _ in range(self._pending)]
        self._pending = 0
        for error in errors:
            if error is not None:
                raise error


class _Parcel:
    """The values of one bucket in one step."""

    def __init__(self, names: Sequence[str], device: Device) -> None:
        self._names, self._device = tuple(names), device
        self._buffers: dict[str, Any] = {}
        self.values: dict[str, Any] = {}

    def fill(self, values: Sequence[Any]) -> None:
        for name, value in zip(self._names, values, strict=True):
            if isinstance(value, SelectedRows):
                self.values[name] = value
                continue
            held = self._buffers.get(name)
            if held is None or held.shape != value.shape or held.dtype != value.dtype:
                held = self._buffers[name] = self._device.module().empty(value.shape, value.dtype)
            held[...] = value if self._device.is_gpu else to_host(value)
            self.values[name] = held

    def sum(self, group: Ranks) -> None:
        by_dtype: dict[Any, list[Any]] = {}
        for name in self._names:
            value = self.values[name]
            if isinstance(value, SelectedRows):
                self.values[name] = _gathered(group, value)
            else:
                by_dtype.setdefault(value.dtype, []).append(value)
        for arrays in by_dtype.values():
            group.all_reduce(arrays)


def _gathered(group: Ranks, mine: SelectedRows) -> SelectedRows:
    xp = group.device.module()
    rows, values = group.all_gather(mine.rows), group.all_gather(mine.values)
    return SelectedRows(xp.concatenate(rows), xp.concatenate(values), mine.height)


def _sum_posted(
    group: Ranks, work: SimpleQueue[_Parcel | None], done: SimpleQueue[BaseException | None]
) -> None:
    while (parcel := work.get()) is not None:
        try:
            with group.device.active():
                parcel.sum(group)
        except Exception as error:  # noqa: BLE001 - raised again where the step is finished
            done.put(error)
        else:
            done.put(None)


def _end(work: SimpleQueue[_Parcel | None], thread: ServiceThread[None]) -> None:
    work.put(None)
    thread.join(10.0)
