# SPDX-License-Identifier: Apache-2.0
"""norm: divides X by its Euclidean norm along an axis (l2_normalize in layers).

squared_l2_norm, l1_norm, clip_by_norm: norms of dense or sparse gradients, and clipping by norm.
lrn: local response normalization, which divides elements by a power of the sum of squares over nearby channels.
"""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.base.shapes import axis_of
from paddle_node.contract.classes import replace


def _infer(x: Spec, *, axis: int) -> tuple[Spec, Spec]:
    at = axis_of(axis, len(x.shape))
    return x._replace(shape=(*x.shape[:at], 1, *x.shape[at + 1 :])), x


@operator("norm", "X -> Norm~ Out", attrs={"axis": int}, infer=_infer)
def norm(x: Array, *, axis: int, epsilon: float = 1e-10) -> tuple[Array, Array]:
    """Normalize X along an axis: return Norm = √(Σ X² + epsilon) and Out = X / Norm."""
    length = array_module(x).sqrt((x * x).sum(axis=axis, keepdims=True) + x.dtype.type(epsilon))
    return length, x / length


@gradient("norm", "Norm Out Out@GRAD -> X@GRAD")
def norm_grad(length: Array, out: Array, dout: Array, *, axis: int) -> Array:
    """Return dX = (dOut - Out Σ dOut Out) / Norm, with the sum along the axis."""
    return (dout - out * (dout * out).sum(axis=axis, keepdims=True)) / length


@operator("squared_l2_norm", "X -> Out", infer="-> X(1, lod=0)", shares_lod=False)
def squared_l2_norm(x: Any) -> Array:
    """Return the squared L2 norm of X, Σ x², (1,)."""
    values = _values(x)
    return (values * values).sum().reshape(1)


@gradient("squared_l2_norm", "X Out@GRAD -> X@GRAD")
def squared_l2_norm_grad(x: Array, dout: Array) -> Array:
    """Return dX = 2 X dOut."""
    return 2 * x * dout


@operator("l1_norm", "X -> Out", infer="-> X(1, lod=0)", shares_lod=False)
def l1_norm(x: Any) -> Array:
    """Return the L1 norm of X, Σ |x|, (1,)."""
    return abs(_values(x)).sum().reshape(1)


@gradient("l1_norm", "X Out@GRAD -> X@GRAD")
def l1_norm_grad(x: Array, dout: Array) -> Array:
    """Return dX = sign(X) dOut."""
    return array_module(x).sign(x) * dout


@operator("clip_by_norm", "X -> Out", attrs={"max_norm": float}, infer="X")
def clip_by_norm(x: Any, *, max_norm: float) -> Any:
    """Clip X by its L2 norm: return X · min(1, max_norm/‖X‖), in the shape of X."""
    if isinstance(x, SelectedRows):
        merged = x.merged()
        return replace(merged, values=clip_by_norm(merged.values, max_norm=max_norm))
    xp = array_module(x)
    norm = xp.sqrt((x * x).sum())
    return x * (max_norm / xp.maximum(norm, max_norm)).astype(x.dtype)


@gradient("clip_by_norm", "X Out@GRAD -> X@GRAD")
def clip_by_norm_grad(x: Array, dout: Array, *, max_norm: float) -> Array:
    """Return dX = c/‖X‖ (dOut − X (X·dOut)/‖X‖²) if the norm was clipped to c, else dOut."""
    xp = array_module(x)
    square = (x * x).sum()
    norm = xp.sqrt(square)
    scale = (max_norm / xp.maximum(norm, max_norm)).astype(x.dtype)
    along = xp.where(norm > max_norm, (x * dout).sum() / xp.maximum(square, xp.finfo(x.dtype).tiny), 0)
    return scale * (dout - x * along.astype(x.dtype))


def _values(x: Any) -> Array:
    """Return all values except those of absent rows, which are 0."""
    return x.merged().values if isinstance(x, SelectedRows) else x


@operator("lrn", "X -> Out MidOut", infer="X(N, C, H, W) -> X, X")
def lrn(
    x: Array, *, n: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75
) -> tuple[Array, Array]:
    """Return MidOut = k + alpha Σ X² over n channels starting at c - (n - 1) // 2, and Out = X MidOut^-beta."""
    before = (n - 1) // 2
    mid = _neighbors(x * x, before, n - 1 - before)
    mid *= x.dtype.type(alpha)
    mid += x.dtype.type(k)
    return x * mid ** x.dtype.type(-beta), mid


@gradient("lrn", "X Out MidOut Out@GRAD -> X@GRAD")
def lrn_grad(x: Array, out: Array, mid: Array, dout: Array, *, n: int, alpha: float, beta: float) -> Array:
    """Return dX = dOut MidOut^-beta - 2 alpha beta X Σ dOut Out / MidOut; summed over the element's windows."""
    before = (n - 1) // 2
    around = _neighbors(dout * out / mid, n - 1 - before, before)
    around *= x * x.dtype.type(2 * alpha * beta)
    return dout * mid ** x.dtype.type(-beta) - around


def _neighbors(values: Array, before: int, after: int) -> Array:
    """Return, for each channel, the sum over `before` channels before it, itself, and `after` channels after it."""
    total = values.copy()
    channels = values.shape[1]
    for distance in range(1, min(before, channels - 1) + 1):
        total[:, distance:] += values[:, :-distance]
    for distance in range(1, min(after, channels - 1) + 1):
        total[:, :-distance] += values[:, distance:]
    return total if channels else array_module(values).zeros_like(values)
