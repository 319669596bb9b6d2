# SPDX-License-Identifier: Apache-2.0
"""Activations that pull values towards zero, or leave small ones out: tanh_shrink, softshrink, hard_shrink,
thresholded_relu; and selu, which keeps mean and variance.
"""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import same_as_input
from paddle.ops.base.registry import gradient, operator

_SELU = {"scale": 1.0507009873554805, "alpha": 1.6732632423543772}


@operator("tanh_shrink", "X -> Out", infer=same_as_input, fresh=True)
def tanh_shrink(x: Array) -> Array:
    """Out = X - tanh X."""
    return x - array_module(x).tanh(x)


@gradient("tanh_shrink", "X Out@GRAD -> X@GRAD", fresh=True)
def tanh_shrink_grad(x: Array, dout: Array) -> Array:
    """dX = dOut tanh² X."""
    return dout * array_module(x).tanh(x) ** 2


@operator("softshrink", "X -> Out", attrs={"lambda": 0.5}, infer=same_as_input, fresh=True)
def softshrink(x: Array, *, lambda_: float) -> Array:
    """Out = X moved towards zero by lambda, and zero within it."""
    return x - x.clip(-lambda_, lambda_)


@gradient("softshrink", "X Out@GRAD -> X@GRAD", fresh=True)
def softshrink_grad(x: Array, dout: Array, *, lambda_: float) -> Array:
    """dX = dOut outside of lambda."""
    return dout * (abs(x) > lambda_)


@operator("hard_shrink", "X -> Out", attrs={"threshold": 0.5}, infer=same_as_input, fresh=True)
def hard_shrink(x: Array, *, threshold: float) -> Array:
    """Out = X, or zero within the threshold."""
    return x * (abs(x) > threshold)


@gradient("hard_shrink", "X Out@GRAD -> X@GRAD", fresh=True)
def hard_shrink_grad(x: Array, dout: Array, *, threshold: float) -> Array:
    """dX = dOut outside of the threshold."""
    return dout * (abs(x) > threshold)


@operator("thresholded_relu", "X -> Out", attrs={"threshold": 1.0}, infer=same_as_input, fresh=True)
def thresholded_relu(x: Array, *, threshold: float) -> Array:
    """Out = X above the threshold, else zero."""
    return x * (x > threshold)


@gradient("thresholded_relu", "X Out@GRAD -> X@GRAD", fresh=True)
def thresholded_relu_grad(x: Array, dout: Array, *, threshold: float) -> Array:
    """dX = dOut above the threshold."""
    return dout * (x > threshold)


@operator("selu", "X -> Out", attrs=_SELU, infer=same_as_input, fresh=True)
def selu(x: Array, *, scale: float, alpha: float) -> Array:
    """Out = scale X, or scale alpha (e^X - 1) below zero."""
    xp, kind = array_module(x), x.dtype.type
    return kind(scale) * xp.where(x > 0, x, kind(alpha) * xp.expm1(xp.minimum(x, 0)))


@gradient("selu", "Out Out@GRAD -> X@GRAD", fresh=True)
def selu_grad(out: Array, dout: Array, *, scale: float, alpha: float) -> Array:
    """dX = scale dOut, or (Out + scale alpha) dOut below zero."""
    kind = out.dtype.type
    return dout * array_module(out).where(out > 0, kind(scale), out + kind(scale * alpha))
