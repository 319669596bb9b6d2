# SPDX-License-Identifier: Apache-2.0
"""Activations with attributes: brelu, relu6, clip, soft_relu, stanh, leaky_relu, elu, pow, hard_sigmoid, swish.

Activations that pull values towards zero, or leave small ones out: tanh_shrink, softshrink, hard_shrink,
thresholded_relu; and selu, which keeps mean and variance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import same_as_input, sigmoid
from paddle.ops.base.registry import GRAD, GradOp, gradient, gradient_maker, operator
from paddle.ops.base.selected_rows import SelectedRows

_SELU = {"scale": 1.0507009873554805, "alpha": 1.6732632423543772}


@operator("brelu", "X -> Out", attrs={"t_min": 0.0, "t_max": 24.0}, infer=same_as_input)
def brelu(x: Array, *, t_min: float, t_max: float) -> Array:
    """Out = X kept within [t_min, t_max]."""
    return x.clip(t_min, t_max)


@gradient("brelu", "X Out@GRAD -> X@GRAD")
def brelu_grad(x: Array, dout: Array, *, t_min: float, t_max: float) -> Array:
    """dX = dOut strictly inside."""
    return dout * ((x > t_min) & (x < t_max))


@operator("relu6", "X -> Out", attrs={"threshold": 6.0}, infer=same_as_input)
def relu6(x: Array, *, threshold: float) -> Array:
    """Out = X kept within [0, threshold]."""
    return x.clip(0, threshold)


@gradient("relu6", "Out Out@GRAD -> X@GRAD")
def relu6_grad(out: Array, dout: Array, *, threshold: float) -> Array:
    """dX = dOut strictly inside."""
    return dout * ((out > 0) & (out < threshold))


@operator("clip", "X -> Out", attrs={"min": float, "max": float}, infer=same_as_input)
def clip(x: Any, *, min: float, max: float) -> Any:
    """Out = X kept within [min, max]; of selected rows sums of equal rows are, and those not there stay 0."""
    if isinstance(x, SelectedRows):
        merged = x.merged()
        return replace(merged, values=merged.values.clip(min, max))
    return x.clip(min, max)


@gradient("clip", "X Out@GRAD -> X@GRAD")
def clip_grad(x: Array, dout: Array, *, min: float, max: float) -> Array:
    """dX = dOut strictly inside."""
    return dout * ((x > min) & (x < max))


@operator("error_clip", "X -> Out", attrs={"threshold": float}, infer=same_as_input)
def error_clip(x: Array, *, threshold: float) -> Array:
    """Return X; what goes back through it is cut to [-threshold, threshold]."""
    return x


@gradient_maker("error_clip")
def _error_clip_grad(
    inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, Sequence[str]], attrs: Mapping[str, object]
) -> list[GradOp]:
    threshold = attrs["threshold"]
    assert isinstance(threshold, float)
    back = {"min": -threshold, "max": threshold}
    return [GradOp("clip", {"X": [outputs["Out"][0] + GRAD]}, {"Out": [inputs["X"][0] + GRAD]}, back)]


@operator("soft_relu", "X -> Out", attrs={"threshold": 40.0}, infer=same_as_input)
def soft_relu(x: Array, *, threshold: float) -> Array:
    """Out = ln(1 + e^X), X kept within ±threshold."""
    xp = array_module(x)
    return xp.log1p(xp.exp(x.clip(-threshold, threshold)))


@gradient("soft_relu", "X Out Out@GRAD -> X@GRAD")
def soft_relu_grad(x: Array, out: Array, dout: Array, *, threshold: float) -> Array:
    """dX = dOut (1 - e^-Out) strictly inside."""
    inside = (x > -threshold) & (x < threshold)
    return dout * -array_module(out).expm1(-out) * inside


@operator("stanh", "X -> Out", attrs={"scale_a": 2.0 / 3.0, "scale_b": 1.7159}, infer=same_as_input)
def stanh(x: Array, *, scale_a: float, scale_b: float) -> Array:
    """Out = b tanh(a X)."""
    out = array_module(x).tanh(x * x.dtype.type(scale_a))
    out *= x.dtype.type(scale_b)
    return out


@gradient("stanh", "Out Out@GRAD -> X@GRAD")
def stanh_grad(out: Array, dout: Array, *, scale_a: float, scale_b: float) -> Array:
    """dX = dOut a (b - Out² / b)."""
    return dout * (scale_a * scale_b - out * out * (scale_a / scale_b))


@operator("leaky_relu", "X -> Out", attrs={"alpha": 0.02}, infer=same_as_input)
def leaky_relu(x: Array, *, alpha: float) -> Array:
    """Out = X, or alpha X below zero."""
    xp = array_module(x)
    return xp.where(x > 0, x, x * x.dtype.type(alpha))


@gradient("leaky_relu", "X Out@GRAD -> X@GRAD")
def leaky_relu_grad(x: Array, dout: Array, *, alpha: float) -> Array:
    """dX = dOut, or alpha dOut below zero."""
    xp = array_module(x)
    return xp.where(x > 0, dout, dout * x.dtype.type(alpha))


@operator("elu", "X -> Out", attrs={"alpha": 1.0}, infer=same_as_input)
def elu(x: Array, *, alpha: float) -> Array:
    """Out = X, or alpha (e^X - 1) below zero."""
    xp = array_module(x)
    return xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


@gradient("elu", "X Out Out@GRAD -> X@GRAD")
def elu_grad(x: Array, out: Array, dout: Array, *, alpha: float) -> Array:
    """dX = dOut, or (Out + alpha) dOut below zero."""
    return dout * array_module(x).where(x > 0, x.dtype.type(1), out + x.dtype.type(alpha))


@operator("pow", "X -> Out", attrs={"factor": 1.0}, infer=same_as_input)
def pow_(x: Array, *, factor: float) -> Array:
    """Out = X to the power of factor."""
    return x ** x.dtype.type(factor)


@gradient("pow", "X Out@GRAD -> X@GRAD")
def pow_grad(x: Array, dout: Array, *, factor: float) -> Array:
    """dX = dOut factor X^(factor - 1)."""
    return dout * x.dtype.type(factor) * x ** x.dtype.type(factor - 1)


@operator("hard_sigmoid", "X -> Out", attrs={"slope": 0.2, "offset": 0.5}, infer=same_as_input)
def hard_sigmoid(x: Array, *, slope: float, offset: float) -> Array:
    """Out = slope X + offset kept within [0, 1]."""
    return (x * x.dtype.type(slope) + x.dtype.type(offset)).clip(0, 1)


@gradient("hard_sigmoid", "Out Out@GRAD -> X@GRAD")
def hard_sigmoid_grad(out: Array, dout: Array, *, slope: float) -> Array:
    """dX = slope dOut strictly inside."""
    return dout * ((out > 0) & (out < 1)) * out.dtype.type(slope)


@operator("swish", "X -> Out", attrs={"beta": 1.0}, infer=same_as_input)
def swish(x: Array, *, beta: float) -> Array:
    """Out = X sigmoid(beta X)."""
    return x * sigmoid(x * x.dtype.type(beta))


@gradient("swish", "X Out Out@GRAD -> X@GRAD")
def swish_grad(x: Array, out: Array, dout: Array, *, beta: float) -> Array:
    """dX = dOut (beta Out + sigmoid(beta X) (1 - beta Out))."""
    gate, scaled = sigmoid(x * x.dtype.type(beta)), out * x.dtype.type(beta)
    return dout * (scaled + gate * (1 - scaled))


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
