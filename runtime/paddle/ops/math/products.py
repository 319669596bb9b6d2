# SPDX-License-Identifier: Apache-2.0
"""matmul (alpha X Y over the last two dimensions, also batched), bilinear_tensor_product, cos_sim, fsp, mul and fc.

bilinear_tensor_product: Out[n, k] = X[n] W[k] Y[n]ᵀ + Bias[k].
cos_sim: the cosine of the angle between corresponding rows of X and Y, of any rank; Y may have a single row.
fsp: the flow of solution procedure between the channels of two layers, for distillation (Yim et al., 2017).
mul: flattens X and Y to matrices and multiplies them, as in a fully connected layer.
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
from paddle.ops.base.shapes import agree, as_many_rows, product, same


def _infer(x: Spec, y: Spec, *, transpose_X: bool, transpose_Y: bool) -> Spec:
    left, right = _row(x.shape), _column(y.shape)
    rows, inner = left[-2:][::-1] if transpose_X else left[-2:]
    outer, columns = right[-2:][::-1] if transpose_Y else right[-2:]
    if not agree(inner, outer) or x.dtype != y.dtype:
        raise ShapeError(
            f"expected equal dtypes and as many columns of X as rows of Y, got X {x.shape} {x.dtype} with {inner} "
            f"columns and Y {y.shape} {y.dtype} with {outer} rows"
        )
    if len(left) > 2 and len(right) > 2:
        batch = same(left[:-2], right[:-2], "the batches of X and Y")
    else:
        batch = left[:-2] or right[:-2]
    shape = _joined(batch, rows, columns, len(x.shape), len(y.shape))
    return Spec(shape, x.dtype, x.lod_level)


@operator("matmul", "X Y -> Out", infer=_infer)
def matmul(
    x: Array, y: Array, *, transpose_X: bool = False, transpose_Y: bool = False, alpha: float = 1.0
) -> Array:
    """Return the matrix product alpha X Y over the last two dimensions.

    A vector X (n,) counts as a row and a vector Y (n,) as a column, or the reverse where transposed: the product of a
    column and a row is a matrix. Dimensions of size one that come from a vector are removed.
    """
    if x.ndim > 2 and y.ndim > 2:
        same(x.shape[:-2], y.shape[:-2], "the batches of X and Y")
    product = _turned(_left(x), transpose_X) @ _turned(_right(y), transpose_Y)
    shape = _joined(product.shape[:-2], product.shape[-2], product.shape[-1], x.ndim, y.ndim)
    return (product if alpha == 1.0 else product * x.dtype.type(alpha)).reshape(shape)


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
    """Return dX = alpha dOut Yᵀ, dY = alpha Xᵀ dOut, transposed where X or Y was."""
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
    """Return dOut Yᵀ, summed over the batch if X was a single matrix."""
    full = dout @ right.swapaxes(-1, -2)
    return full.reshape(-1, *full.shape[-2:]).sum(axis=0) if left.ndim < full.ndim else full


def _over_batch_t(left: Array, dout: Array, right: Array) -> Array:
    """Return Xᵀ dOut, summed over the batch if Y was a single matrix."""
    full = left.swapaxes(-1, -2) @ dout
    return full.reshape(-1, *full.shape[-2:]).sum(axis=0) if right.ndim < full.ndim else full


def _joined(
    batch: tuple[int, ...], rows: int, columns: int, left_rank: int, right_rank: int
) -> tuple[int, ...]:
    first = () if left_rank == 1 and rows == 1 else (rows,)
    last = () if right_rank == 1 and columns == 1 else (columns,)
    return (*batch, *first, *last) or (1,)


def _row(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) > 1 else (1, *shape)


def _column(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) > 1 else (*shape, 1)


def _left(x: Array) -> Array:
    return x.reshape(_row(x.shape))


def _right(y: Array) -> Array:
    return y.reshape(_column(y.shape))


def _turned(matrix: Array, turn: bool) -> Array:
    return matrix.swapaxes(-1, -2) if turn else matrix


@operator(
    "bilinear_tensor_product",
    "X Y Weight Bias? -> Out",
    infer="X(N, A), Y(N, B), Weight(K, A, B), Bias(1, K) -> X(N, K)",
)
def bilinear_tensor_product(x: Array, y: Array, weight: Array, bias: Array | None) -> Array:
    """Return the bilinear tensor product (N, K): Out[n, k] = X[n] W[k] Y[n]ᵀ + Bias[k]."""
    as_many_rows(x, y, "X and Y")
    out = array_module(x).einsum("na,kab,nb->nk", x, weight, y, optimize=True)
    return out if bias is None else out + bias


@gradient("bilinear_tensor_product", "X Y Weight Bias? Out@GRAD -> X@GRAD Y@GRAD Weight@GRAD Bias@GRAD?")
def bilinear_tensor_product_grad(
    x: Array, y: Array, weight: Array, bias: Array | None, dout: Array
) -> tuple[Array, Array, Array, Array | None]:
    """Return dX, dY, dWeight and dBias: for each factor, dOut times the other factors."""
    einsum = array_module(x).einsum
    return (
        einsum("nk,kab,nb->na", dout, weight, y, optimize=True),
        einsum("nk,na,kab->nb", dout, x, weight, optimize=True),
        einsum("nk,na,nb->kab", dout, x, y, optimize=True),
        None if bias is None else dout.sum(axis=0, keepdims=True),
    )


def _infer_cos_sim(x: Spec, y: Spec) -> tuple[Spec, Spec, Spec]:
    fits = len(x.shape) == len(y.shape) > 1 and all(map(agree, x.shape[1:], y.shape[1:]))
    if not fits or not (y.shape[0] == 1 or agree(x.shape[0], y.shape[0])):
        raise ShapeError(f"expected X (rows, ...) and Y (rows or 1, ...), got {x.shape} and {y.shape}")
    column = x._replace(shape=(x.shape[0], 1))
    return column, column, y._replace(shape=(y.shape[0], 1))


@operator("cos_sim", "X Y -> Out XNorm~ YNorm~", infer=_infer_cos_sim)
def cos_sim(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return the cosine similarity X·Y / (|X| |Y|) of rows as vectors, (N, 1); rows of length zero give nan."""
    if len(y) != 1:
        as_many_rows(x, y, "X and Y")
    xp = array_module(x)
    x, y = x.reshape(len(x), prod(x.shape[1:])), y.reshape(len(y), prod(y.shape[1:]))
    xnorm = xp.sqrt((x * x).sum(axis=1, keepdims=True))
    ynorm = xp.sqrt((y * y).sum(axis=1, keepdims=True))
    return (x * y).sum(axis=1, keepdims=True) / (xnorm * ynorm), xnorm, ynorm


@gradient("cos_sim", "X Y Out XNorm YNorm Out@GRAD -> X@GRAD Y@GRAD")
def cos_sim_grad(
    x: Array, y: Array, out: Array, xnorm: Array, ynorm: Array, dout: Array
) -> tuple[Array, Array]:
    """Return dX = dOut (Y / (|X| |Y|) - Out X / |X|²), and dY, in which X and Y are exchanged."""
    both, shape = xnorm * ynorm, (-1, *(1,) * (x.ndim - 1))
    by_x, by_y = (dout / both).reshape(shape), (dout * out).reshape(shape)
    dx = by_x * y - by_y * x / (xnorm * xnorm).reshape(shape)
    dy = by_x * x - by_y * y / (ynorm * ynorm).reshape(shape)
    return dx, dy if len(y) == len(x) else dy.sum(axis=0, keepdims=True)


bilinear("matmul")


@operator("fsp", "X Y -> Out", infer="X(N, A, H, W), Y(N, B, H, W) -> X(N, A, B, lod=0)")
def fsp(x: Array, y: Array) -> Array:
    """Return the FSP matrix (N, C1, C2) = X Yᵀ/(H W), with each channel of an image as a row."""
    return _rows(x) @ _rows(y).swapaxes(1, 2) / _area(x)


@gradient("fsp", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def fsp_grad(x: Array, y: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX = dOut Y/(H W), dY = dOutᵀ X/(H W)."""
    share = dout / _area(x)
    return (share @ _rows(y)).reshape(x.shape), (share.swapaxes(1, 2) @ _rows(x)).reshape(y.shape)


def _rows(x: Array) -> Array:
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])


def _area(x: Array) -> Array:
    return x.dtype.type(max(x.shape[2] * x.shape[3], 1))


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


@operator("mul", "X Y -> Out", infer=_infer_mul, fresh=True)
def mul(x: Array, y: Array, *, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> Array:
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
