# SPDX-License-Identifier: Apache-2.0
"""conv_shift: circular convolution of each row with a short row of weights (neural Turing machines)."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, from_host
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree


def _infer(x: Spec, y: Spec) -> Spec:
    if len(x.shape) != 2 or len(y.shape) != 2 or not agree(x.shape[0], y.shape[0]):
        raise ShapeError(f"expected X (rows, M) and Y (rows, N), got {x.shape} and {y.shape}")
    if y.shape[1] >= 0 and (y.shape[1] % 2 == 0 or (x.shape[1] >= 0 and y.shape[1] > x.shape[1])):
        raise ShapeError(f"the width of Y must be odd and at most that of X {x.shape}, got {y.shape}")
    return x


@operator("conv_shift", "X Y -> Out", infer=_infer)
def conv_shift(x: Array, y: Array) -> Array:
    """Return the circular convolution of rows X (B, M) and Y (B, N): Out[i] = Σ_j X[(i + j - (N - 1)/2) mod M] Y[j]."""
    return (x[:, _places(x, y)] * y[:, None, :]).sum(axis=2)


@gradient("conv_shift", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def conv_shift_grad(x: Array, y: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX, the convolution of dOut with reversed Y, and dY[j] = Σ_i dOut[i] X[(i + j - (N - 1)/2) mod M]."""
    return conv_shift(dout, y[:, ::-1]), (x[:, _places(x, y)] * dout[:, :, None]).sum(axis=1)


def _places(x: Array, y: Array) -> Array:
    """Return the column of X that each element [i, j] reads, (M, N)."""
    width, weights = x.shape[1], y.shape[1]
    places = np.arange(width)[:, None] + np.arange(weights)[None, :] - (weights - 1) // 2
    return from_host(places % max(width, 1), x)
