# SPDX-License-Identifier: Apache-2.0
"""softmax along an axis; logits over 64 below the greatest count as 64 below: no probability is zero."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.registry import Spec, gradient, operator
from paddle.ops.shapes import axis_of

_LOWEST = -64.0


def _infer(x: Spec, *, axis: int) -> Spec:
    axis_of(axis, len(x.shape))
    return x


def softmax_of(x: Array, axis: int) -> Array:
    """Return exp(x - max) / sum, a new array; rows without elements stay empty."""
    xp = array_module(x)
    if not x.size:
        return x.copy()
    out: Array = x - x.max(axis=axis, keepdims=True)
    # Reading is cheaper than writing, and logits that far apart are rare.
    if float(out.min()) < _LOWEST:
        xp.maximum(out, x.dtype.type(_LOWEST), out=out)
    xp.exp(out, out=out)
    out /= _sums(out, axis)
    return out


def _sums(out: Array, axis: int) -> Array:
    xp = array_module(out)
    if axis in (-1, out.ndim - 1):
        return (out @ xp.ones(out.shape[-1], out.dtype))[..., None]
    return out.sum(axis=axis, keepdims=True)


@operator(
    "softmax", "X -> Out", attrs={"axis": -1, "data_format": "AnyLayout", "is_test": False}, infer=_infer
)
def softmax(x: Array, *, axis: int) -> Array:
    """Probabilities."""
    return softmax_of(x, axis)


@gradient("softmax", "Out Out@GRAD -> X@GRAD")
def softmax_grad(out: Array, dout: Array, *, axis: int) -> Array:
    """dX = Out (dOut - sum of dOut Out)."""
    xp = array_module(out)
    if axis in (-1, out.ndim - 1):
        inner = xp.einsum("...i,...i->...", dout, out)[..., None]
    else:
        inner = (dout * out).sum(axis=axis, keepdims=True)
    dx: Array = dout - inner
    dx *= out
    return dx
