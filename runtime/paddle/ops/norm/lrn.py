# SPDX-License-Identifier: Apache-2.0
"""lrn: local response normalization, which divides elements by a power of the sum of squares over nearby channels."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.registry import gradient, operator


@operator(
    "lrn",
    "X -> Out MidOut",
    attrs={"n": 5, "k": 2.0, "alpha": 1e-4, "beta": 0.75},
    infer="X(N, C, H, W) -> X, X",
)
def lrn(x: Array, *, n: int, k: float, alpha: float, beta: float) -> tuple[Array, Array]:
    """Return MidOut = k + alpha Σ X² over n channels from c - (n - 1) // 2 on, and Out = X MidOut^-beta."""
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
