# SPDX-License-Identifier: Apache-2.0
"""lod_rank_table, max_sequence_len, shrink_rnn_memory, ...: sequences as arrays of time steps, longest first.

split_lod_tensor and merge_lod_tensor: split rows by a mask, and merge both parts in the original order. For values with
LoD, the mask selects sequences of one level. For plain values, and for masks with as many rows as the value, it selects
rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module, to_host
from paddle.ops.base import segments
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import Lod, LoDArray, Offsets, TensorArray, ends_of, lod_of, plain, with_lod
from paddle.ops.base.registry import Spec, gradient, operator
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


@operator("lod_rank_table", "X+ -> Out+", infer="-> int64()")
def lod_rank_table(x: Any, *, level: int = 0) -> RankTable:
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


@operator("split_lod_tensor", "X+ Mask -> OutTrue+ OutFalse+", infer="X(_, ...) -> X(-1, ...), X(-1, ...)")
def split_lod_tensor(x: Any, mask: Array, *, level: int = 0) -> tuple[Any, Any]:
    """Split X into the part where Mask (n, 1) is true and the rest; outputs have the LoD levels starting at `level`."""
    holds = _holds(mask)
    lod = _levels(x, level, holds)
    true, false = (_taken(plain(x), lod, np.flatnonzero(each)) for each in (holds, ~holds))
    return true, false


@gradient("split_lod_tensor", "X+ Mask OutTrue@GRAD OutFalse@GRAD -> X@GRAD")
def split_lod_tensor_grad(x: Any, mask: Array, dtrue: Array, dfalse: Array, *, level: int) -> Array:
    """Return dX: the gradients of both parts, merged in the order of X."""
    holds = _holds(mask)
    lod = _levels(x, level, holds)
    dx: Array = array_module(dtrue).empty_like(plain(x))
    for each, found in ((holds, dtrue), (~holds, dfalse)):
        rows, _ = segments.chosen(lod, np.flatnonzero(each))
        dx[at(rows, dx)] = found
    return dx


def _infer_merge(x: Spec, mask: Spec, true: Spec, false: Spec) -> Spec:
    return true._replace(shape=(-1 if true.lod_level else mask.shape[0], *true.shape[1:]))


@operator("merge_lod_tensor", "X+ Mask InTrue+ InFalse+ -> Out+", attrs={"level": 0}, infer=_infer_merge)
@operator(
    "merge_lod_tensor_infer", "X+ Mask InTrue+ InFalse+ -> Out+", attrs={"level": 0}, infer=_infer_merge
)
def merge_lod_tensor(x: Any, mask: Array, true: Any, false: Any, *, level: int) -> Any:
    """Merge by a mask: return elements of InTrue where Mask is true and of InFalse elsewhere, each in order.

    Out has the levels of X above `level`, followed by those of InTrue and InFalse.
    """
    lod, order = _merged(mask, true, false)
    rows = array_module(plain(true)).concatenate([plain(true), plain(false)])
    out = _taken(rows, lod, order)
    return with_lod(plain(out), (*lod_of(x)[:level], *lod_of(out))) if lod else out


@gradient("merge_lod_tensor", "Mask InTrue+ InFalse+ Out@GRAD -> InTrue@GRAD InFalse@GRAD")
def merge_lod_tensor_grad(mask: Array, true: Any, false: Any, dout: Array) -> tuple[Array, Array]:
    """Return dInTrue and dInFalse: the rows of dOut, split by Mask."""
    rows, _ = segments.chosen(*_merged(mask, true, false))
    joined: Array = array_module(dout).empty_like(dout)
    joined[at(rows, joined)] = dout
    return joined[: len(true)], joined[len(true) :]


def _holds(mask: Array) -> Array:
    return to_host(mask).reshape(-1).astype(bool)


def _levels(x: Any, level: int, holds: Array) -> Lod:
    """Return the levels whose members the mask selects; none if it selects rows.

    Raises:
        InputError: it has a different number of rows.
    """
    lod = lod_of(x)[level:]
    if lod and len(holds) == len(lod[0]) - 1:
        return lod
    if len(holds) != len(x):
        members = f"{len(lod[0]) - 1} sequences in level {level} and " if lod else ""
        raise InputError(f"Mask has {len(holds)} rows, but the values have {members}{len(x)} rows")
    return ()


def _merged(mask: Array, true: Any, false: Any) -> tuple[Lod, Offsets]:
    """Return the concatenated levels of InTrue and InFalse, and the order of their members."""
    holds = _holds(mask)
    depth = max(len(lod_of(true)), len(lod_of(false)))
    parts = [lod_of(each) or (np.zeros(1, np.int64),) * depth if depth else () for each in (true, false)]
    lod = tuple(
        ends_of(np.concatenate([lengths(each) for each in pair])) for pair in zip(*parts, strict=True)
    )
    counts = [
        len(part[0]) - 1 if part else len(each) for part, each in zip(parts, (true, false), strict=True)
    ]
    wanted = [int(holds.sum()), int((~holds).sum())]
    if counts != wanted or (lod and lod[-1][-1] != len(true) + len(false)):
        what = "sequences" if lod else "rows"
        raise InputError(
            f"Mask selects {wanted[0]} {what} from InTrue and {wanted[1]} from InFalse, but they have {counts[0]} and "
            f"{counts[1]}"
        )
    order = np.empty(len(holds), np.int64)
    order[holds], order[~holds] = np.arange(counts[0]), counts[0] + np.arange(counts[1])
    return lod, order


def _taken(data: Array, lod: Lod, chosen: Offsets) -> Any:
    rows, levels = segments.chosen(lod, chosen)
    part = data[at(rows, data)]
    return LoDArray(part, levels) if levels else part
