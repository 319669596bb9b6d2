# SPDX-License-Identifier: Apache-2.0
"""Slots, the fields of MultiSlot lines, and samples, which are stored in one column per slot.

A column contains the concatenated values of a slot and the offset of each sample.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from paddle.collective.ranks import Ranks
from paddle.fluid.errors import FluidError
from paddle.fluid.program.block import Block
from paddle.fluid.program.variable import Variable
from paddle.ops.base.lod import LoDArray, ends_of
from paddle_node.contract.classes import dataclass


class SlotType(enum.Enum):
    """The type of a slot's values, as written in descriptions; uint64 values fill int64 variables."""

    UINT64 = "uint64"
    FLOAT = "float"

    @property
    def dtype(self) -> np.dtype[np.int64] | np.dtype[np.float32]:
        """The dtype of the slot's arrays."""
        return np.dtype(np.int64) if self is SlotType.UINT64 else np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class Slot:
    """One field of a line.

    Attributes:
        name: name of the slot and of its variable.
        type: type of the values.
        is_dense: whether all samples have the same number of values, which form an array; other slots become sequences.
        is_used: whether the slot fills a variable; otherwise, it is skipped.
        shape: the shape of one sample of a dense slot; -1 means unknown.
    """

    name: str
    type: SlotType
    is_dense: bool = False
    is_used: bool = True
    shape: tuple[int, ...] = (1,)

    @property
    def width(self) -> int:
        """Return the number of values in each sample of a dense slot, or -1."""
        return math.prod(self.shape) if min(self.shape, default=1) >= 0 else -1


def slot_of(variable: Variable) -> Slot:
    """Return the slot that fills a variable. The slot is dense unless the variable has a LoD level.

    Raises:
        FluidError: the variable is neither int64 nor float32.
    """
    types = {kind.dtype: kind for kind in SlotType}
    kind = types.get(np.dtype(variable.dtype))
    if kind is None:
        raise FluidError(
            f"MultiSlot text supports int64 and float32 variables; {variable.name!r} is {variable.dtype}"
        )
    return Slot(variable.name, kind, not variable.lod_level, True, tuple(variable.shape[1:]))


def check_variables(slots: Sequence[Slot], block: Block) -> tuple[Slot, ...]:
    """Match slots with the block's variables of the same names; return the slots with the variables' shapes.

    Raises:
        FluidError: a used slot has no variable, or one with a different dtype.
    """
    checked = []
    for slot in slots:
        if not slot.is_used:
            checked.append(slot)
            continue
        variable = block.find(slot.name)
        if not isinstance(variable, Variable):
            raise FluidError(
                f"slot {slot.name!r} has is_used set, but the program has no variable of that name"
            )
        found = slot_of(variable)
        if found.type is not slot.type:
            raise FluidError(
                f"slot {slot.name!r} has values of type {slot.type.value}, but its variable is {variable.dtype}"
            )
        checked.append(Slot(slot.name, slot.type, slot.is_dense, True, found.shape))
    return tuple(checked)


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The values of one slot for all samples. The arrays can be views, and are never modified.

    Attributes:
        values: (all values,) int64 or float32.
        offsets: (samples + 1,) int64 from 0: sample i has values[offsets[i]:offsets[i + 1]].
    """

    values: NDArray[Any]
    offsets: NDArray[np.int64]

    def part(self, start: int, end: int) -> Self:
        """Return the samples from `start` to `end` (exclusive), as views."""
        offsets = self.offsets[start : end + 1]
        return type(self)(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return the samples with these indices, in this order."""
        starts = self.offsets[rows]
        ends = ends_of(self.offsets[rows + 1] - starts)
        places = np.repeat(starts - ends[:-1], np.diff(ends)) + np.arange(ends[-1])
        return type(self)(self.values[places], ends)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples of a data set, stored as one column per used slot.

    Attributes:
        slots: the used slots.
        columns: one per slot.
        count: number of samples.
    """

    slots: tuple[Slot, ...]
    columns: tuple[Column, ...]
    count: int

    def part(self, start: int, end: int) -> Samples:
        """Return the samples from `start` to `end` (exclusive), as views."""
        end = min(end, self.count)
        return Samples(self.slots, tuple(column.part(start, end) for column in self.columns), end - start)

    def take(self, rows: NDArray[np.int64]) -> Samples:
        """Return the samples with these indices, in this order."""
        return Samples(self.slots, tuple(column.take(rows) for column in self.columns), len(rows))

    def feed(self) -> dict[str, Any]:
        """Return the samples as a feed: slot name -> array (samples, ...), or `LoDArray` (values, 1) for sequences.

        Raises:
            FluidError: the samples of a dense slot have different lengths.
        """
        return {
            slot.name: self._dense(slot, column)
            if slot.is_dense
            else LoDArray.unchecked(column.values[:, None], (column.offsets,))
            for slot, column in zip(self.slots, self.columns, strict=True)
        }

    def _dense(self, slot: Slot, column: Column) -> NDArray[Any]:
        lengths = np.diff(column.offsets)
        if (lengths != lengths[0]).any():
            raise FluidError(
                f"slot {slot.name!r} is dense, but the samples of a batch have {lengths.min()} to "
                f"{lengths.max()} values: declare its variable with lod_level=1 for sequences"
            )
        try:
            return column.values.reshape(self.count, *slot.shape)
        except ValueError as error:
            raise FluidError(
                f"slot {slot.name!r}: expected values of shape {slot.shape} per sample, got {lengths[0]} values"
            ) from error


def joined(parts: Sequence[Samples]) -> Samples:
    """Concatenate groups of samples that have the same slots."""
    if len(parts) == 1:
        return parts[0]
    columns = [
        Column(
            np.concatenate([column.values for column in same]),
            ends_of(np.concatenate([np.diff(column.offsets) for column in same])),
        )
        for same in zip(*(part.columns for part in parts), strict=True)
    ]
    return Samples(parts[0].slots, tuple(columns), sum(part.count for part in parts))


def shared_out(mine: Samples, ranks: Ranks, seed: int) -> tuple[Samples, int]:
    """Shuffle the samples of all ranks together; return this rank's share and the size of the smallest share.

    Ranks exchange one column at a time; the sizes of the shares differ by at most one sample.

    Args:
        mine: the samples of this rank; all ranks have the same slots.
        ranks: the group of ranks, all of which must call this function.
        seed: only rank 0's is used.
    """
    ranks.agree("dataset", str(mine.slots))
    drawn = np.array([seed >> 32, seed & 0xFFFFFFFF])
    ranks.broadcast(drawn)
    total = sum(int(each[0]) for each in ranks.all_gather(np.array([mine.count])))
    rows = np.random.default_rng(drawn.tolist()).permutation(total)[ranks.rank :: ranks.size]
    columns = []
    for column in mine.columns:
        values = np.concatenate(ranks.all_gather(np.ascontiguousarray(column.values)))
        lengths = np.concatenate(ranks.all_gather(np.diff(column.offsets)))
        columns.append(Column(values, ends_of(lengths)).take(rows))
    return Samples(mine.slots, tuple(columns), len(rows)), total // ranks.size


def batches(parts: Iterable[Samples], size: int) -> Iterator[Samples]:
    """Regroup samples into batches of `size` samples; the last batch may be smaller."""
    waiting: list[Samples] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += part.count
        if count < size:
            continue
        whole = joined(waiting)
        full = count - count % size
        for start in range(0, full, size):
            yield whole.part(start, start + size)
        count -= full
        waiting = [whole.part(full, whole.count)] if count else []
    if count:
        yield joined(waiting)
