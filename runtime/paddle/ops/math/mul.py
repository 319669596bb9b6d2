# SPDX-License-Identifier: Apache-2.0
"""mul: flattens X and Y to matrices and multiplies them, as in a fully connected layer.

fc: a fully connected layer as one operator, as in inference programs; layers.fc uses several operators.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.second import bilinear
from paddle.ops.base.shapes import agree, product

# With at most this many rows, OpenBLAS computes dOut Yᵀ a third faster as (Y dOutᵀ)ᵀ.
_FLAT = 128


def _infer_mul(x: Spec, y: Spec, *, x_num_col_dims: int, y_num_col_dims: int) -> Spec:
    if not 0 < x_num_col_dims < len(x.shape) or not 0 < y_num_col_dims < len(y.shape):
        raise ShapeError(
            f"expected x_num_col_dims from 1 to {len(x.shape) - 1} and y_num_col_dims from 1 to {len(y.shape) - 1} "
            f"for X {x.shape} and Y {y.shape}, got {x_num_col_dims} and {y_num_col_dims}"
        )
    inner, outer = product(x.shape[x_num_col_dims:]), product(y.shape[:y_num_col_dims])
    if not agree(inner, outer) or x.dtype != y.dtype:
        raise ShapeError(
            f"expected equal dtypes and as many columns of X as rows of Y, got X {x.shape} {x.dtype} with {inner} "
            f"columns and Y {y.shape} {y.dtype} with {outer} rows"
        )
    return Spec(x.shape[:x_num_col_dims] + y.shape[y_num_col_dims:], x.dtype, x.lod_level)


@operator("mul", "X Y -> Out", attrs={"x_num_col_dims": 1, "y_num_col_dims": 1}, infer=_infer_mul, fresh=True)
def mul(x: Array, y: Array, *, x_num_col_dims: int, y_num_col_dims: int) -> Array:
    """Return the matrix product X Y, with shape X.shape[:x_num_col_dims] + Y.shape[y_num_col_dims:]."""
    if x.ndim == 2 and y.ndim == 2:
        return x @ y
    product_2d = _matrix(x, x_num_col_dims) @ _matrix(y, y_num_col_dims)
    return product_2d.reshape(x.shape[:x_num_col_dims] + y.shape[y_num_col_dims:])


@gradient("mul", "X Y Out@GRAD -> X@GRAD Y@GRAD", fresh=True)
def mul_grad(
    x: Array,
    y: Array,
    dout: Array,
    *,
    x_num_col_dims: int,
    y_num_col_dims: int,
    needs: frozenset[str],
    room: Callable[[str], Array | None],
) -> tuple[Array | None, Array | None]:
    """Return dX = dOut Yᵀ and dY = Xᵀ dOut, as products of the flattened matrices, in the shapes of X and Y."""
    x2, y2 = _matrix(x, x_num_col_dims), _matrix(y, y_num_col_dims)
    dout2 = dout.reshape(x2.shape[0], y2.shape[1])
    dx = _times_transposed(dout2, y2).reshape(x.shape) if "X@GRAD" in needs else None
    if "Y@GRAD" not in needs:
        return dx, None
    dy = room("Y@GRAD")
    if dy is None:
        return dx, (x2.T @ dout2).reshape(y.shape)
    np.matmul(x2.T, dout2, out=dy.reshape(y2.shape))
    return dx, dy


def _times_transposed(dout: Array, y: Array) -> Array:
    """Return dOut Yᵀ."""
    xp = array_module(dout)
    if xp is np and len(dout) <= _FLAT:
        return np.ascontiguousarray((y @ dout.T).T)
    return dout @ y.T


def _matrix(x: Array, columns_from: int) -> Array:
    return (
        x
        if x.ndim == 2 and columns_from == 1
        else x.reshape(prod(x.shape[:columns_from]), prod(x.shape[columns_from:]))
    )


bilinear("mul")


def _infer_fc(x: Spec, w: Spec, bias: Spec | None, *, in_num_col_dims: int) -> Spec:
    if not 1 <= in_num_col_dims < len(x.shape) or len(w.shape) != 2:
        raise ShapeError(
            f"expected W (I, O) and in_num_col_dims from 1 to {len(x.shape) - 1} for Input {x.shape}, got W "
            f"{w.shape} and in_num_col_dims={in_num_col_dims}"
        )
    if not agree(product(x.shape[in_num_col_dims:]), w.shape[0]):
        raise ShapeError(
            f"Input {x.shape}, flattened after {in_num_col_dims} dimensions, does not fit W {w.shape}: "
            f"rows have {product(x.shape[in_num_col_dims:])} elements; expected {w.shape[0]}"
        )
    if bias is not None and bias.shape not in ((w.shape[1],), (1, w.shape[1])):
        raise ShapeError(f"expected Bias (1, {w.shape[1]}), got {bias.shape}")
    return x._replace(shape=(*x.shape[:in_num_col_dims], w.shape[1]))


@operator(
    "fc",
    "Input W Bias? -> Out",
    attrs={"in_num_col_dims": 1, "activation_type": one_of("", "relu")},
    infer=_infer_fc,
    fresh=True,
)
def fc(x: Array, w: Array, bias: Array | None, *, in_num_col_dims: int, activation_type: str) -> Array:
    """Return act(Input W + Bias), where the first in_num_col_dims dimensions of Input are the rows."""
    out: Array = x.reshape(prod(x.shape[:in_num_col_dims]), -1 if x.size else len(w)) @ w
    if bias is not None:
        out += bias.reshape(-1)
    if activation_type == "relu":
        out = out.clip(0, None)
    return out.reshape(*x.shape[:in_num_col_dims], w.shape[1])


@gradient("fc", "Input W Bias? Out Out@GRAD -> Input@GRAD W@GRAD Bias@GRAD?")
def fc_grad(
    x: Array, w: Array, bias: Array | None, out: Array, dout: Array, *, activation_type: str
) -> tuple[Array, Array, Array | None]:
    """Return dInput = dOut Wᵀ, dW = Inputᵀ dOut, dBias = the column sums of dOut, after the activation's gradient."""
    rows = (dout * (out > 0) if activation_type == "relu" else dout).reshape(-1, w.shape[1])
    dw = x.reshape(len(rows), len(w)).T @ rows
    return (rows @ w.T).reshape(x.shape), dw, None if bias is None else rows.sum(axis=0).reshape(bias.shape)
