# SPDX-License-Identifier: Apache-2.0
"""Element-wise activations with attributes (bounds, slopes, powers), and error_clip, which bounds a gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import elementwise, sigmoid
from paddle.ops.base.registry import GRAD, GradOp, Names, gradient_maker, operator
from paddle.ops.base.second import curved
from paddle.ops.base.selected_rows import SelectedRows
from paddle_node.contract.classes import replace

_SELU = {"scale": 1.0507009873554805, "alpha": 1.6732632423543772}


elementwise(
    "softshrink",
    lambda x, *, lambda_: x - x.clip(-lambda_, lambda_),
    lambda x, dout, *, lambda_: dout * (abs(x) > lambda_),
    attrs={"lambda": 0.5},
)
elementwise(
    "hard_shrink",
    lambda x, *, threshold: x * (abs(x) > threshold),
    lambda x, dout, *, threshold: dout * (abs(x) > threshold),
    attrs={"threshold": 0.5},
)
elementwise(
    "thresholded_relu",
    lambda x, *, threshold: x * (x > threshold),
    lambda x, dout, *, threshold: dout * (x > threshold),
    attrs={"threshold": 1.0},
)
elementwise(
    "brelu",
    lambda x, *, t_min, t_max: x.clip(t_min, t_max),
    lambda x, dout, *, t_min, t_max: dout * ((x > t_min) & (x < t_max)),
    attrs={"t_min": 0.0, "t_max": 24.0},
)
elementwise(
    "relu6",
    lambda x, *, threshold: x.clip(0, threshold),
    lambda out, dout, *, threshold: dout * ((out > 0) & (out < threshold)),
    of="Out",
    attrs={"threshold": 6.0},
)
elementwise(
    "hard_sigmoid",
    lambda x, *, slope, offset: (x * x.dtype.type(slope) + x.dtype.type(offset)).clip(0, 1),
    lambda out, dout, *, slope: dout * ((out > 0) & (out < 1)) * out.dtype.type(slope),
    of="Out",
    attrs={"slope": 0.2, "offset": 0.5},
)
elementwise(
    "stanh",
    lambda x, *, scale_a, scale_b: array_module(x).tanh(x * x.dtype.type(scale_a)) * x.dtype.type(scale_b),
    lambda out, dout, *, scale_a, scale_b: dout * (scale_a * scale_b - out * out * (scale_a / scale_b)),
    of="Out",
    attrs={"scale_a": 2.0 / 3.0, "scale_b": 1.7159},
)
elementwise(
    "leaky_relu",
    lambda x, *, alpha: array_module(x).where(x > 0, x, x * x.dtype.type(alpha)),
    lambda x, dout, *, alpha: array_module(x).where(x > 0, dout, dout * x.dtype.type(alpha)),
    attrs={"alpha": 0.02},
)
elementwise(
    "pow",
    lambda x, *, factor: x ** x.dtype.type(factor),
    lambda x, dout, *, factor: dout * x.dtype.type(factor) * x ** x.dtype.type(factor - 1),
    attrs={"factor": 1.0},
)


def _soft_relu(x: Array, *, threshold: float) -> Array:
    """Return Out = ln(1 + e^X), with X clipped to ±threshold."""
    xp = array_module(x)
    return xp.log1p(xp.exp(x.clip(-threshold, threshold)))


def _soft_relu_grad(x: Array, out: Array, dout: Array, *, threshold: float) -> Array:
    """Return dX = dOut (1 - e^-Out) where X is strictly inside the bounds."""
    inside = (x > -threshold) & (x < threshold)
    return dout * -array_module(out).expm1(-out) * inside


def _elu(x: Array, *, alpha: float) -> Array:
    """Return Out = X, or alpha (e^X - 1) below zero."""
    xp = array_module(x)
    return xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


def _elu_grad(x: Array, out: Array, dout: Array, *, alpha: float) -> Array:
    """Return dX = dOut, or (Out + alpha) dOut below zero."""
    return dout * array_module(x).where(x > 0, x.dtype.type(1), out + x.dtype.type(alpha))


def _selu(x: Array, *, scale: float, alpha: float) -> Array:
    """Return Out = scale X, or scale alpha (e^X - 1) below zero."""
    xp, kind = array_module(x), x.dtype.type
    return kind(scale) * xp.where(x > 0, x, kind(alpha) * xp.expm1(xp.minimum(x, 0)))


def _selu_grad(out: Array, dout: Array, *, scale: float, alpha: float) -> Array:
    """Return dX = scale dOut, or (Out + scale alpha) dOut below zero."""
    kind = out.dtype.type
    return dout * array_module(out).where(out > 0, kind(scale), out + kind(scale * alpha))


def _swish_grad(x: Array, out: Array, dout: Array, *, beta: float) -> Array:
    """Return dX = dOut (beta Out + sigmoid(beta X) (1 - beta Out))."""
    gate, scaled = sigmoid(x * x.dtype.type(beta)), out * x.dtype.type(beta)
    return dout * (scaled + gate * (1 - scaled))


elementwise("soft_relu", _soft_relu, _soft_relu_grad, of="X Out", attrs={"threshold": 40.0})
elementwise("elu", _elu, _elu_grad, of="X Out", attrs={"alpha": 1.0})
elementwise("selu", _selu, _selu_grad, of="Out", attrs=_SELU)
elementwise(
    "swish",
    lambda x, *, beta: x * sigmoid(x * x.dtype.type(beta)),
    _swish_grad,
    of="X Out",
    attrs={"beta": 1.0},
)


def clip(x: Any, *, min: float, max: float) -> Any:
    """Return X with each element clipped to [min, max].

    For selected rows, repeated rows are summed before clipping, and absent rows stay 0.
    """
    if isinstance(x, SelectedRows):
        merged = x.merged()
        return replace(merged, values=merged.values.clip(min, max))
    return x.clip(min, max)


elementwise(
    "clip",
    clip,
    lambda x, dout, *, min, max: dout * ((x > min) & (x < max)),
    attrs={"min": float, "max": float},
    fresh=False,
)


@operator("error_clip", "X -> Out", attrs={"threshold": float}, infer="X")
def error_clip(x: Array, *, threshold: float) -> Array:
    """Return X unchanged; clip its gradient to [-threshold, threshold] in the backward pass."""
    return x


@gradient_maker("error_clip")
def _error_clip_grad(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
    threshold = attrs["threshold"]
    assert isinstance(threshold, float)
    back = {"min": -threshold, "max": threshold}
    return [GradOp("clip", {"X": [outputs["Out"][0] + GRAD]}, {"Out": [inputs["X"][0] + GRAD]}, back)]


for _type in (
    "softshrink",
    "hard_shrink",
    "thresholded_relu",
    "brelu",
    "relu6",
    "hard_sigmoid",
    "leaky_relu",
    "clip",
):
    curved(_type, None)
curved("pow", lambda x, factor: factor * (factor - 1) * x ** (factor - 2))
curved("stanh", lambda out, scale_a, scale_b: -2 * scale_a / scale_b * out)
