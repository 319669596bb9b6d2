# SPDX-License-Identifier: Apache-2.0
"""sequence_reshape, lod_reset, sequence_concat and _expand: regroup, join or repeat the rows of sequences.

sequence_concat: sequence i of Out is the concatenation of sequence i of all inputs.
sequence_expand and sequence_expand_as: sequences or rows of X, each repeated as Y specifies.
sequence_join and sequence_windows: remove or add one level of sequences; the rows do not change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module, to_host
from paddle.ops.base.attributes import Limit
from paddle.ops.base.errors import AttrError, InputError
from paddle.ops.base.lod import Lod, LoDArray, Offsets, ends_of, lod_of, plain, sequences, with_lod
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, joined, lengths, owners, positions, ranges, scatter_sum


@operator(
    "sequence_reshape",
    "X+ -> Out+",
    attrs={"new_dim": Limit(int, least=1)},
    infer="-> X(-1, new_dim, lod=max(X, 1))",
)
def sequence_reshape(x: Any, *, new_dim: int) -> LoDArray:
    """Reshape sequences to rows of new_dim numbers; each sequence keeps its numbers, so its number of rows changes.

    Raises:
        InputError: the numbers of a sequence do not form an integral number of rows.
    """
    data, offsets = sequences(x, "X")
    moved = offsets * data.shape[1]
    if (moved % new_dim).any():
        raise InputError(
            f"expected new_dim to divide the numbers of each sequence, got new_dim={new_dim} and rows of "
            f"{data.shape[1]} numbers"
        )
    return LoDArray(data.reshape(-1, new_dim), (*x.lod[:-1], moved // new_dim))


@gradient("sequence_reshape", "X Out@GRAD -> X@GRAD")
def sequence_reshape_grad(x: Array, dout: Array) -> Array:
    """Return dX: dOut in the shape of X."""
    return dout.reshape(x.shape)


def _infer_reset(x: Spec, y: Spec | None) -> Spec:
    return x._replace(lod_level=max(y.lod_level if y else 1, 1))


@operator("lod_reset", "X+ Y+? -> Out+", infer=_infer_reset)
def lod_reset(x: Any, y: Any, *, target_lod: tuple[int, ...] = ()) -> LoDArray:
    """Return X with the LoD of Y, with Y's numbers as offsets if it has no LoD, or with the offsets target_lod."""
    data = plain(x)
    if y is None:
        if not target_lod:
            raise AttrError("lod_reset: expected Y or target_lod, got neither")
        return LoDArray(data, (np.asarray(target_lod, np.int64),))
    return LoDArray(data, lod_of(y) or (to_host(y).reshape(-1).astype(np.int64),))


@gradient("lod_reset", "Out@GRAD -> X@GRAD")
def lod_reset_grad(dout: Array) -> Array:
    """Return dX = dOut."""
    return dout


@operator("sequence_concat", "X+* -> Out+", infer="X(_, ...) -> X(-1, ..., lod=max(X, 1))")
def sequence_concat(x: list[Any]) -> LoDArray:
    """Concatenate sequences: sequence i of Out is sequence i of all inputs, which have the same number of sequences."""
    rows, offsets = _joined(x)
    stacked = array_module(x[0].data).concatenate([each.data for each in x])
    return LoDArray(stacked[at(rows, stacked)], (*x[0].lod[:-1], offsets))


@gradient("sequence_concat", "X+* Out@GRAD -> X@GRAD*")
def sequence_concat_grad(x: list[Any], dout: Array) -> list[Array]:
    """Return the gradients of the inputs: the rows of dOut that come from each."""
    rows, _ = _joined(x)
    stacked = array_module(dout).empty_like(dout)
    stacked[at(rows, dout)] = dout
    ends = np.cumsum([len(each) for each in x])
    return [stacked[end - len(each) : end] for end, each in zip(ends, x, strict=True)]


def _joined(x: list[Any]) -> tuple[Offsets, Offsets]:
    """Return the rows of the stacked inputs that form Out, and Out's offsets."""
    levels = [sequences(each, "X")[1] for each in x]
    if len({len(level) for level in levels}) != 1:
        raise InputError(
            f"inputs must have the same number of sequences, got {[len(level) - 1 for level in levels]}"
        )
    bases = np.cumsum([0, *(len(each) for each in x[:-1])])
    starts = np.stack([level[:-1] + base for level, base in zip(levels, bases, strict=True)], axis=1)
    counts = np.stack([lengths(level) for level in levels], axis=1)
    return ranges(starts.reshape(-1), counts.reshape(-1)), ends_of(counts.sum(axis=1))


@operator("sequence_expand", "X+ Y+ -> Out+", infer="X(_, ...) -> X(-1, ..., lod=max(X, Y, 1))")
def sequence_expand(x: Any, y: Any, *, ref_level: int = -1) -> Any:
    """Repeat entry i of X (a sequence, or a row unless X has one level) by the length of entry i of Y's `ref_level`.

    Out has one level with an entry for each repetition; where rows are repeated, Out has Y's levels down to ref_level.
    """
    data = plain(x)
    rows, lod = _expansion(x, y, ref_level)
    return with_lod(data[at(rows, data)], lod)


@gradient("sequence_expand", "X+ Y+ Out@GRAD -> X@GRAD")
def sequence_expand_grad(x: Any, y: Any, dout: Array, *, ref_level: int) -> Array:
    """Return dX, the sum of dOut over the repetitions of each row."""
    rows, _ = _expansion(x, y, ref_level)
    return scatter_sum(dout, at(rows, dout), len(plain(x)))


@operator("sequence_expand_as", "X Y+ -> Out+", infer="X(_, ...) -> X(-1, ..., lod=max(X, Y, 1))")
def sequence_expand_as(x: Array, y: Any) -> Any:
    """Repeat each row i of X by the length of sequence i of Y; Out has the LoD of Y."""
    rows = _repeated(len(x), sequences(y, "Y")[1])
    return with_lod(x[at(rows, x)], lod_of(y))


@gradient("sequence_expand_as", "X Y+ Out@GRAD -> X@GRAD")
def sequence_expand_as_grad(x: Array, y: Any, dout: Array) -> Array:
    """Return dX, the sum of dOut over the repetitions of each row."""
    return scatter_sum(dout, at(_repeated(len(x), sequences(y, "Y")[1]), dout), len(x))


def _expansion(x: Any, y: Any, ref_level: int) -> tuple[Offsets, Lod]:
    """Return the rows of X that form Out, and its LoD."""
    levels = lod_of(y)
    if not levels or not -1 <= ref_level < len(levels):
        raise AttrError(
            f"expected ref_level to be one of the {len(levels)} levels of Y's LoD, or -1 for the last, got "
            f"{ref_level}"
        )
    reference = levels[ref_level]
    # The ids of a beam search have two levels, and its states are repeated row by row.
    if len(lod_of(x)) != 1:
        used = len(levels) if ref_level == -1 else ref_level + 1
        return _repeated(len(x), reference), levels[:used]
    offsets = lod_of(x)[0]
    chosen = _repeated(len(offsets) - 1, reference)
    counts = lengths(offsets)[chosen]
    return ranges(offsets[chosen], counts), (ends_of(counts),)


def _repeated(count: int, reference: Offsets) -> Offsets:
    if len(reference) - 1 != count:
        raise InputError(
            f"X has {count} rows or sequences to repeat, but the level of Y has {len(reference) - 1} sequences"
        )
    return np.repeat(np.arange(count), lengths(reference))


@operator("sequence_join", "X+ -> Out+", infer="X(...) -> X(..., lod=1)")
def sequence_join(x: Any) -> LoDArray:
    """Remove a level: return the outermost sequences of X, each with all of its rows."""
    data, _ = sequences(x, "X")
    return LoDArray(data, (joined(x.lod),))


@operator(
    "sequence_windows",
    "X+ -> Out+",
    attrs={"stride": Limit(int, least=1)},
    infer="X(...) -> X(..., lod=X + 1)",
)
def sequence_windows(x: Any, *, stride: int, from_end: bool = False) -> LoDArray:
    """Split sequences of X into sequences of `stride` rows; the last, or the first if from_end, may be shorter."""
    data, offsets = sequences(x, "X")
    counts = lengths(offsets)
    windows = -(-counts // stride)
    outer = ends_of(windows)
    sizes = np.full(int(outer[-1]), stride, np.int64)
    place = positions(outer)
    odd = place == (0 if from_end else (windows - 1)[owners(outer)])
    sizes[odd] = (counts - (windows - 1) * stride)[owners(outer)][odd]
    return LoDArray(data, (*x.lod[:-1], outer, ends_of(sizes)))


@gradient("sequence_join", "Out@GRAD -> X@GRAD")
def sequence_join_grad(dout: Array) -> Array:
    """Return dX = dOut."""
    return dout


@gradient("sequence_windows", "Out@GRAD -> X@GRAD")
def sequence_windows_grad(dout: Array) -> Array:
    """Return dX = dOut."""
    return dout
