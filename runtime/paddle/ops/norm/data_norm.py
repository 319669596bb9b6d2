# SPDX-License-Identifier: Apache-2.0
"""data_norm: normalizes columns by the count, sum and sum of squares of all data so far, which are parameters."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import Limit
from paddle.ops.base.registry import gradient, operator

_ATTRS = {"epsilon": Limit(1e-4, 0, 1e-3), "data_layout": "NCHW"}


@operator(
    "data_norm",
    "X BatchSize BatchSum BatchSquareSum -> Y Means~ Scales~",
    attrs=_ATTRS,
    infer="X(N, C), BatchSize(C), BatchSum(C), BatchSquareSum(C) -> X, X(C, lod=0), X(C, lod=0)",
)
def data_norm(x: Array, size: Array, total: Array, squares: Array) -> tuple[Array, Array, Array]:
    """Return Y = (X - Means) Scales, with Means = BatchSum/BatchSize and Scales = √(BatchSize/BatchSquareSum)."""
    means, scales = total / size, array_module(x).sqrt(size / squares)
    return (x - means) * scales, means, scales


@gradient(
    "data_norm",
    "X Means Scales Y@GRAD -> X@GRAD BatchSize@GRAD BatchSum@GRAD BatchSquareSum@GRAD",
)
def data_norm_grad(
    x: Array, means: Array, scales: Array, dy: Array, *, epsilon: float
) -> tuple[Array, Array, Array, Array]:
    """Return dX = dY Scales; the other outputs are not derivatives but this batch's additions to the statistics."""
    size = array_module(x).full(means.shape, len(x), x.dtype)
    squares = ((x - means) ** 2).sum(axis=0) + size * x.dtype.type(epsilon)
    return dy * scales, size, x.sum(axis=0), squares
