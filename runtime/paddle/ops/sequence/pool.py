# SPDX-License-Identifier: Apache-2.0
"""sequence_pool: reduces each sequence to one row (sum, average, maximum, first, last, ...).

sequence_softmax: softmax over the rows of each sequence, with one number per row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.lod import LoDArray, Offsets, sequences, with_lod
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, column, lengths, scatter_sum, segment_max, segment_sum, spread
from paddle.ops.base.shapes import product

_INT32 = np.dtype("int32")


def _infer(x: Spec, *, pooltype: str) -> tuple[Spec, Spec]:
    if pooltype.upper() not in (*_POOLS, "MAX"):
        raise AttrError(f"pooltype: expected one of {', '.join((*_POOLS, 'MAX'))}, got {pooltype!r}")
    shape = (-1, *x.shape[1:])
    return Spec(shape, x.dtype, max(x.lod_level - 1, 0)), Spec(shape, _INT32)


@operator("sequence_pool", "X+ -> Out+ MaxIndex~", attrs={"is_test": False}, infer=_infer)
def sequence_pool(x: Any, *, pooltype: str = "AVERAGE", pad_value: float = 0.0) -> tuple[Any, Array | None]:
    """Return the pooled rows (n, ...), pad_value for empty sequences, and the row numbers of the maxima (MAX only).

    The last level of LoD is removed; the levels before it are kept.
    """
    data, offsets = sequences(x, "X")
    index = None
    if pooltype.upper() == "MAX":
        out = segment_max(data, offsets, pad_value)
        index = _first_equal(data, out, offsets)
    else:
        out = _POOLS[pooltype.upper()](data, offsets)
        empty = np.flatnonzero(lengths(offsets) == 0)
        if len(empty):
            out[at(empty, out)] = pad_value
    return with_lod(out, x.lod[:-1]), index


@gradient("sequence_pool", "X+ MaxIndex Out@GRAD -> X@GRAD")
def sequence_pool_grad(x: LoDArray, index: Array | None, dout: Array, *, pooltype: str) -> Array:
    """Return dX: the gradient distributed over the rows; for maximum, first and last only to the selected row."""
    data, offsets = sequences(x, "X")
    kind = pooltype.upper()
    if kind in _WEIGHTS:
        return spread(dout * _WEIGHTS[kind](offsets, dout), offsets)
    dx: Array = array_module(data).zeros_like(data)
    filled = np.flatnonzero(lengths(offsets))
    if kind == "MAX" and index is not None:
        flat = scatter_sum(dout[at(filled, dout)].reshape(-1), _flat(index[at(filled, dout)]), data.size)
        return flat.reshape(data.shape)
    rows = offsets[:-1] if kind == "FIRST" else offsets[1:] - 1
    dx[at(rows[filled], dx)] = dout[at(filled, dout)]
    return dx


def _first_equal(data: Array, greatest: Array, offsets: Offsets) -> Array:
    """Return (n, ...) int32 numbers of the first row with the maximum, -1 for an empty sequence."""
    xp = array_module(data)
    rows = xp.arange(len(data)).reshape(-1, *(1,) * (data.ndim - 1))
    equal = data == spread(greatest, offsets)
    # The maximum of the negated numbers is the first row.
    return -segment_max(xp.where(equal, -rows, -len(data)), offsets, 1).astype(_INT32)


def _flat(index: Array) -> Array:
    """Return positions in the raveled data: the index holds row numbers, and its own position is the column."""
    xp = array_module(index)
    width = int(np.prod(index.shape[1:], dtype=np.int64))
    return (index.reshape(len(index), width).astype(xp.int64) * width + xp.arange(width)).reshape(-1)


def _counts(offsets: Offsets) -> Offsets:
    return np.maximum(lengths(offsets), 1)


def _rows(data: Array, rows: Offsets) -> Array:
    """Return rows of the data; for an empty sequence any row, or zeros."""
    if not len(data):
        return array_module(data).zeros((len(rows), *data.shape[1:]), data.dtype)
    return data[at(rows.clip(0, len(data) - 1), data)]


_WEIGHTS: dict[str, Callable[[Offsets, Array], Any]] = {
    "SUM": lambda offsets, like: 1,
    "AVERAGE": lambda offsets, like: 1 / column(_counts(offsets), like),
    "SQRT": lambda offsets, like: 1 / column(np.sqrt(_counts(offsets)), like),
}
_POOLS: dict[str, Callable[[Array, Offsets], Array]] = {
    "SUM": segment_sum,
    "AVERAGE": lambda x, offsets: segment_sum(x, offsets) / column(_counts(offsets), x),
    "SQRT": lambda x, offsets: segment_sum(x, offsets) / column(np.sqrt(_counts(offsets)), x),
    "FIRST": lambda x, offsets: _rows(x, offsets[:-1]),
    "LAST": lambda x, offsets: _rows(x, offsets[1:] - 1),
}


def _infer_softmax(x: Spec) -> Spec:
    if product(x.shape[1:]) not in (1, -1):
        raise ShapeError(f"expected one number per row, got {x.shape}")
    return x


@operator(
    "sequence_softmax",
    "X+ -> Out+",
    attrs={"use_cudnn": False, "data_format": "AnyLayout"},
    infer=_infer_softmax,
)
def sequence_softmax(x: Any) -> LoDArray:
    """Return the softmax over the rows of each sequence, in the shape of X; X has one number per row."""
    data, offsets = sequences(x, "X")
    out = array_module(data).exp(data - spread(segment_max(data, offsets, 0), offsets))
    out /= spread(segment_sum(out, offsets), offsets)
    return LoDArray(out, x.lod)


@gradient("sequence_softmax", "Out+ Out@GRAD -> X@GRAD")
def sequence_softmax_grad(out: LoDArray, dout: Array) -> Array:
    """Return dX = Out (dOut - sum of dOut Out)."""
    data, offsets = sequences(out, "Out")
    return data * (dout - spread(segment_sum(dout * data, offsets), offsets))
