# SPDX-License-Identifier: Apache-2.0
"""mean: the mean of all elements, shape (1,)."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, gradient, operator


def _infer(x: Spec) -> Spec:
    return Spec((1,), x.dtype)


@operator("mean", "X -> Out", infer=_infer)
def mean(x: Array) -> Array:
    """Return the mean; 0 for no elements, so that an empty batch costs nothing."""
    total = x.sum().reshape(1)
    return total / x.dtype.type(x.size) if x.size else total


@gradient("mean", "X Out@GRAD -> X@GRAD")
def mean_grad(x: Array, dout: Array) -> Array:
    """dX = dOut / size."""
    spread: Array = array_module(x).broadcast_to(dout / x.dtype.type(max(x.size, 1)), x.shape)
    return spread
