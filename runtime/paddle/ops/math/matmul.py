# SPDX-License-Identifier: Apache-2.0
"""matmul: alpha X Y over the last two dimensions; either side may be one matrix for the whole batch, or a vector."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree, same

_ATTRS = {"transpose_X": False, "transpose_Y": False, "alpha": 1.0}


def _infer(x: Spec, y: Spec, *, transpose_X: bool, transpose_Y: bool) -> Spec:
    left = x.shape if len(x.shape) > 1 else (1, *x.shape)
    right = y.shape if len(y.shape) > 1 else (*y.shape, 1)
    rows, inner = left[-2:][::-1] if transpose_X else left[-2:]
    outer, columns = right[-2:][::-1] if transpose_Y else right[-2:]
    if not agree(inner, outer) or x.dtype != y.dtype:
        raise ShapeError(f"X {x.shape} {x.dtype} has {inner} columns, Y {y.shape} {y.dtype} has {outer} rows")
    if len(left) > 2 and len(right) > 2:
        batch = same(left[:-2], right[:-2], "the batches of X and Y")
    else:
        batch = left[:-2] or right[:-2]
    shape = batch + ((rows,) if len(x.shape) > 1 else ()) + ((columns,) if len(y.shape) > 1 else ())
    return Spec(shape or (1,), x.dtype, x.lod_level)


@operator("matmul", "X Y -> Out", attrs=_ATTRS, infer=_infer)
def matmul(x: Array, y: Array, *, transpose_X: bool, transpose_Y: bool, alpha: float) -> Array:
    """Return alpha X Y."""
    product = _turned(_left(x), transpose_X) @ _turned(_right(y), transpose_Y)
    if x.ndim == 1:
        product = product[..., 0, :]
    if y.ndim == 1:
        product = product[..., 0]
    return (product if alpha == 1.0 else product * x.dtype.type(alpha)).reshape(product.shape or (1,))


@gradient("matmul", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def matmul_grad(
    x: Array,
    y: Array,
    dout: Array,
    *,
    transpose_X: bool,
    transpose_Y: bool,
    alpha: float,
    needs: frozenset[str],
) -> tuple[Array | None, Array | None]:
    """dX = alpha dOut Yᵀ, dY = alpha Xᵀ dOut, transposed where X or Y was."""
    left, right = _turned(_left(x), transpose_X), _turned(_right(y), transpose_Y)
    batch = left.shape[:-2] or right.shape[:-2]
    scaled = dout if alpha == 1.0 else dout * dout.dtype.type(alpha)
    scaled = scaled.reshape(*batch, left.shape[-2], right.shape[-1])
    dx = dy = None
    if "X@GRAD" in needs:
        dx = _turned(_over_batch(scaled, right, left), transpose_X).reshape(x.shape)
    if "Y@GRAD" in needs:
        dy = _turned(_over_batch_t(left, scaled, right), transpose_Y).reshape(y.shape)
    return dx, dy


def _over_batch(dout: Array, right: Array, left: Array) -> Array:
    """Return dOut Yᵀ, added up over the batch if X was one matrix for all of it."""
    full = dout @ right.swapaxes(-1, -2)
    return full.reshape(-1, *full.shape[-2:]).sum(axis=0) if left.ndim < full.ndim else full


def _over_batch_t(left: Array, dout: Array, right: Array) -> Array:
    """Return Xᵀ dOut, added up over the batch if Y was one matrix for all of it."""
    full = left.swapaxes(-1, -2) @ dout
    return full.reshape(-1, *full.shape[-2:]).sum(axis=0) if right.ndim < full.ndim else full


def _left(x: Array) -> Array:
    return x if x.ndim > 1 else x[None, :]


def _right(y: Array) -> Array:
    return y if y.ndim > 1 else y[:, None]


def _turned(matrix: Array, turn: bool) -> Array:
    return matrix.swapaxes(-1, -2) if turn else matrix
