# SPDX-License-Identifier: Apache-2.0
"""lod_rank_table, max_sequence_len, shrink_rnn_memory, ...: sequences as arrays of time steps, longest first."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, Offsets, TensorArray, ends_of, lod_of, plain, with_lod
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import TimeSteps, at, lengths, ranges
from paddle.ops.base.shapes import any_rows

_INT64 = np.dtype("int64")


class RankTable:
    """The order of one level's sequences by length, longest first; see `TimeSteps`.

    Attributes:
        offsets: the offsets of the level that the table was computed from.
        steps: the rows of the level in time order.
    """

    shape = ()
    dtype = _INT64

    def __init__(self, offsets: Offsets) -> None:
        self.offsets = offsets
        self.steps = TimeSteps.of(offsets)

    @property
    def items(self) -> list[tuple[int, int]]:
        """The (sequence index, length) pairs, longest first."""
        counts = lengths(self.offsets)
        return [(int(each), int(counts[each])) for each in self.steps.order]


@operator("lod_rank_table", "X+ -> Out+", attrs={"level": 0}, infer="-> int64()")
def lod_rank_table(x: Any, *, level: int) -> RankTable:
    """Sort the sequences of one level of X's LoD by length, and return their rank table."""
    if level >= len(lod_of(x)):
        raise InputError(
            f"lod_rank_table: X has {len(lod_of(x))} levels of LoD, but level {level} was requested"
        )
    return RankTable(lod_of(x)[level])


@operator("max_sequence_len", "RankTable+ -> Out", infer="-> int64(1)")
def max_sequence_len(table: RankTable) -> Array:
    """Return the length of the longest sequence, (1,) int64."""
    return np.array([len(table.steps.bounds) - 1], _INT64)


@operator("lod_tensor_to_array", "X+ RankTable+ -> Out+", infer="X(_, ...) -> X(-1, ..., lod=0)")
def lod_tensor_to_array(x: Any, table: RankTable) -> TensorArray:
    """Split sequences into an array with the rows of each time step, longest sequence first."""
    ordered = table.steps.by_time(plain(x))
    return TensorArray(tuple(ordered[rows] for rows in table.steps))


@gradient("lod_tensor_to_array", "X RankTable+ Out@GRAD+ -> X@GRAD")
def lod_tensor_to_array_grad(x: Array, table: RankTable, dout: TensorArray) -> Array:
    """Return dX: the gradients of the time steps, moved back to the rows of their sequences."""
    ordered = array_module(x).zeros_like(x)
    for rows, part in zip(table.steps, dout.items, strict=False):
        if part is not None:
            ordered[rows] = plain(part)
    return table.steps.by_sequence(ordered)


@operator("array_to_lod_tensor", "X+ RankTable+ -> Out+", infer="X(_, ...) -> X(-1, ..., lod=1)")
def array_to_lod_tensor(x: TensorArray, table: RankTable) -> LoDArray:
    """Assemble sequences from an array of time steps, the inverse of `lod_tensor_to_array`."""
    parts = [plain(x.item(step)) for step in range(len(table.steps.bounds) - 1)]
    joined = array_module(parts[0]).concatenate(parts)
    return LoDArray(table.steps.by_sequence(joined), (table.offsets,))


@gradient("array_to_lod_tensor", "RankTable+ Out@GRAD -> X@GRAD+")
def array_to_lod_tensor_grad(table: RankTable, dout: Array) -> TensorArray:
    """Return dX: an array with the rows of dOut for each time step."""
    ordered = table.steps.by_time(dout)
    return TensorArray(tuple(ordered[rows] for rows in table.steps))


@operator("shrink_rnn_memory", "X I RankTable+ -> Out", infer=any_rows, shares_lod=False)
def shrink_rnn_memory(x: Array, index: Array, table: RankTable) -> Array:
    """Return the rows of the sequences that have not ended before step I."""
    step, bounds = int(index.reshape(-1)[0]), table.steps.bounds
    return x[: bounds[step + 1] - bounds[step]] if step + 1 < len(bounds) else x[:0]


@gradient("shrink_rnn_memory", "X Out@GRAD -> X@GRAD")
def shrink_rnn_memory_grad(x: Array, dout: Array) -> Array:
    """Return dX: the gradients of the running sequences, and zeros for the ended ones."""
    dx: Array = array_module(x).zeros_like(x)
    dx[: len(dout)] = dout
    return dx


@operator("reorder_lod_tensor_by_rank", "X+ RankTable+ -> Out+", infer=any_rows)
def reorder_lod_tensor_by_rank(x: Any, table: RankTable) -> Any:
    """Reorder the sequences of X (its rows, if it has no LoD) to the order of a rank table."""
    rows, counts = _ranked(x, table)
    data = plain(x)
    return with_lod(data[at(rows, data)], (ends_of(counts),) if lod_of(x) else ())


@gradient("reorder_lod_tensor_by_rank", "X+ RankTable+ Out@GRAD -> X@GRAD")
def reorder_lod_tensor_by_rank_grad(x: Any, table: RankTable, dout: Array) -> Array:
    """Return dX: the sequences of dOut in their original order."""
    rows, _ = _ranked(x, table)
    dx: Array = array_module(dout).empty_like(dout)
    dx[at(rows, dx)] = dout
    return dx


def _ranked(x: Any, table: RankTable) -> tuple[Offsets, Offsets]:
    """Return the row numbers in table order, and the number of rows of each sequence."""
    offsets = lod_of(x)[0] if lod_of(x) else np.arange(len(plain(x)) + 1)
    order = table.steps.order
    if len(lod_of(x)) > 1 or len(offsets) - 1 != len(order):
        raise InputError(
            f"the table ranks {len(order)} sequences, but X has {len(offsets) - 1} in its first level"
        )
    counts = lengths(offsets)[order]
    return ranges(offsets[:-1][order], counts), counts
