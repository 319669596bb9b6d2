# SPDX-License-Identifier: Apache-2.0
"""softmax along an axis. Logits are clipped to at least the maximum minus 64, so that no probability is zero."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.registry import NO_SLOTS, Spec, gradient, operator
from paddle.ops.base.shapes import axis_of

_LOWEST = -64.0
# Elements per piece, so that a piece stays in the cache from one pass to the next.
_PIECE = 1 << 16


def _infer(x: Spec, *, axis: int) -> Spec:
    axis_of(axis, len(x.shape))
    return x


def softmax_of(x: Array, axis: int, out: Array | None = None) -> Array:
    """Return the softmax along an axis, exp(x - max) / Σ exp(x - max), in `out` (which may be x) or in a new array.

    Rows without elements stay empty.
    """
    xp = array_module(x)
    if not x.size:
        return x.copy()
    if xp is np and axis in (-1, x.ndim - 1) and x.size > _PIECE and x.flags.c_contiguous:
        out = xp.empty_like(x) if out is None else out
        rows, results = x.reshape(-1, x.shape[-1]), out.reshape(-1, x.shape[-1])
        count = max(_PIECE // x.shape[-1], 1)
        for start in range(0, len(rows), count):
            _softmax(rows[start : start + count], -1, results[start : start + count])
        return out
    return _softmax(x, axis, out)


def _softmax(x: Array, axis: int, out: Array | None) -> Array:
    xp = array_module(x)
    out = xp.subtract(x, x.max(axis=axis, keepdims=True), out=out)
    # Reading is cheaper than writing, and logits that far below the maximum are rare.
    if float(out.min()) < _LOWEST:
        xp.maximum(out, x.dtype.type(_LOWEST), out=out)
    xp.exp(out, out=out)
    out *= xp.reciprocal(_sums(out, axis))
    return out


def _sums(out: Array, axis: int) -> Array:
    xp = array_module(out)
    if xp is np and axis in (-1, out.ndim - 1):
        return (out @ xp.ones(out.shape[-1], out.dtype))[..., None]
    return out.sum(axis=axis, keepdims=True)


@operator(
    "softmax",
    "X -> Out",
    attrs={"axis": -1, "data_format": "AnyLayout", "is_test": False},
    infer=_infer,
    fresh=True,
)
def softmax(x: Array, *, axis: int, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Return softmax(X) along the axis: e^(X - max) / Σ e^(X - max), in the shape of X."""
    return softmax_of(x, axis, x if "X" in spent else None)


@gradient("softmax", "Out Out@GRAD -> X@GRAD", fresh=True)
def softmax_grad(out: Array, dout: Array, *, axis: int) -> Array:
    """Return dX = Out (dOut - Σ dOut Out), with the sum along the axis."""
    xp = array_module(out)
    if xp is np and axis in (-1, out.ndim - 1):
        inner = xp.einsum("...i,...i->...", dout, out)[..., None]
    else:
        inner = (dout * out).sum(axis=axis, keepdims=True)
    dx: Array = dout - inner
    dx *= out
    return dx
