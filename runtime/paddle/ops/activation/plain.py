# SPDX-License-Identifier: Apache-2.0
"""Functions of single elements: activations, with and without attributes, trigonometry, rounding.

The rows have Out of X, and dX of X or Out and of dOut; what needs more than a line, or gives way in place, is below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.registry import (
    GRAD,
    NO_SLOTS,
    GradOp,
    gradient,
    gradient_maker,
    operator,
)
from paddle.ops.base.selected_rows import SelectedRows

_SELU = {"scale": 1.0507009873554805, "alpha": 1.6732632423543772}


def elementwise(
    op_type: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    *,
    of: str = "X",
    attrs: Mapping[str, object] | None = None,
    fresh: bool = True,
) -> None:
    """Register a function of single elements, X -> Out, with its gradient.

    Args:
        op_type: Fluid's name of the operator.
        forward: kernel of X and attributes.
        backward: kernel of the values that `of` names, Out@GRAD and attributes; None: no gradient.
        of: "X", "Out" or "X Out".
        attrs: see `operator`.
        fresh: see `OpDef`.
    """
    operator(op_type, "X -> Out", attrs=attrs, infer="X", fresh=fresh)(forward)
    if backward is not None:
        gradient(op_type, f"{of} Out@GRAD -> X@GRAD", fresh=fresh)(backward)


@operator("sigmoid", "X -> Out", infer="X", fresh=True)
def sigmoid(x: Array, *, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Out = 1 / (1 + e^-X)."""
    xp = array_module(x)
    out = xp.negative(x, out=x if "X" in spent else None)
    xp.exp(out, out=out)
    out += 1
    xp.reciprocal(out, out=out)
    return out


@gradient("sigmoid", "Out Out@GRAD -> X@GRAD", fresh=True)
def sigmoid_grad(out: Array, dout: Array) -> Array:
    """dX = dOut Out (1 - Out)."""
    dx = 1 - out
    dx *= out
    dx *= dout
    return dx


@operator("tanh", "X -> Out", infer="X", fresh=True)
def tanh(x: Array, *, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Out = tanh X."""
    return array_module(x).tanh(x, out=x if "X" in spent else None)


@gradient("tanh", "Out Out@GRAD -> X@GRAD", fresh=True)
def tanh_grad(out: Array, dout: Array) -> Array:
    """dX = dOut (1 - Out²)."""
    dx = out * out
    array_module(dx).subtract(1, dx, out=dx)
    dx *= dout
    return dx


@operator("relu", "X -> Out", infer="X", fresh=True)
def relu(x: Array, *, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Out = max(X, 0)."""
    return array_module(x).maximum(x, 0, out=x if "X" in spent else None)


@gradient("relu", "Out Out@GRAD -> X@GRAD", fresh=True)
def relu_grad(out: Array, dout: Array, *, spent: frozenset[str] = NO_SLOTS) -> Array:
    """dX = dOut where Out > 0."""
    return array_module(out).multiply(dout, out > 0, out=dout if "Out@GRAD" in spent else None)


@operator("square", "X -> Out", infer="X", fresh=True)
def square(x: Array) -> Array:
    """Out = X²."""
    return x * x


@gradient("square", "X Out@GRAD -> X@GRAD", fresh=True)
def square_grad(x: Array, dout: Array) -> Array:
    """dX = 2 X dOut."""
    dx = dout * x
    dx *= 2
    return dx


def _logsigmoid(x: Array) -> Array:
    return -array_module(x).logaddexp(-x, 0).astype(x.dtype, copy=False)


def _softplus(x: Array) -> Array:
    return array_module(x).logaddexp(x, 0).astype(x.dtype, copy=False)


elementwise("exp", lambda x: array_module(x).exp(x), lambda out, dout: dout * out, of="Out")
elementwise("log", lambda x: array_module(x).log(x), lambda x, dout: dout / x)
elementwise("sqrt", lambda x: array_module(x).sqrt(x), lambda out, dout: dout / (2 * out), of="Out")
elementwise(
    "rsqrt", lambda x: 1 / array_module(x).sqrt(x), lambda out, dout: out * out * out * dout / -2, of="Out"
)
elementwise(
    "reciprocal", lambda x: array_module(x).reciprocal(x), lambda out, dout: -dout * out * out, of="Out"
)
elementwise("abs", lambda x: array_module(x).abs(x), lambda x, dout: dout * array_module(x).sign(x))
elementwise("cos", lambda x: array_module(x).cos(x), lambda x, dout: -array_module(x).sin(x) * dout)
elementwise("sin", lambda x: array_module(x).sin(x), lambda x, dout: array_module(x).cos(x) * dout)
elementwise(
    "acos", lambda x: array_module(x).arccos(x), lambda x, dout: -dout / array_module(x).sqrt(1 - x * x)
)
elementwise(
    "asin", lambda x: array_module(x).arcsin(x), lambda x, dout: dout / array_module(x).sqrt(1 - x * x)
)
elementwise("atan", lambda x: array_module(x).arctan(x), lambda x, dout: dout / (1 + x * x))
elementwise("logsigmoid", _logsigmoid, lambda x, dout: dout * sigmoid(-x))
elementwise("softplus", _softplus, lambda x, dout: dout * sigmoid(x))
elementwise(
    "softsign",
    lambda x: x / (1 + array_module(x).abs(x)),
    lambda x, dout: dout / (1 + array_module(x).abs(x)) ** 2,
)
elementwise(
    "tanh_shrink", lambda x: x - array_module(x).tanh(x), lambda x, dout: dout * array_module(x).tanh(x) ** 2
)
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
    """Out = ln(1 + e^X), X kept within ±threshold."""
    xp = array_module(x)
    return xp.log1p(xp.exp(x.clip(-threshold, threshold)))


def _soft_relu_grad(x: Array, out: Array, dout: Array, *, threshold: float) -> Array:
    """dX = dOut (1 - e^-Out) strictly inside."""
    inside = (x > -threshold) & (x < threshold)
    return dout * -array_module(out).expm1(-out) * inside


def _elu(x: Array, *, alpha: float) -> Array:
    """Out = X, or alpha (e^X - 1) below zero."""
    xp = array_module(x)
    return xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


def _elu_grad(x: Array, out: Array, dout: Array, *, alpha: float) -> Array:
    """dX = dOut, or (Out + alpha) dOut below zero."""
    return dout * array_module(x).where(x > 0, x.dtype.type(1), out + x.dtype.type(alpha))


def _selu(x: Array, *, scale: float, alpha: float) -> Array:
    """Out = scale X, or scale alpha (e^X - 1) below zero."""
    xp, kind = array_module(x), x.dtype.type
    return kind(scale) * xp.where(x > 0, x, kind(alpha) * xp.expm1(xp.minimum(x, 0)))


def _selu_grad(out: Array, dout: Array, *, scale: float, alpha: float) -> Array:
    """dX = scale dOut, or (Out + scale alpha) dOut below zero."""
    kind = out.dtype.type
    return dout * array_module(out).where(out > 0, kind(scale), out + kind(scale * alpha))


def _swish_grad(x: Array, out: Array, dout: Array, *, beta: float) -> Array:
    """dX = dOut (beta Out + sigmoid(beta X) (1 - beta Out))."""
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
    """Return X kept within [min, max]; of selected rows sums of equal rows are, and those not there stay 0."""
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


def _rounded(x: Array) -> Array:
    """Out = the nearest whole number, halves away from zero as in C."""
    xp = array_module(x)
    whole = xp.trunc(x)
    return whole + xp.trunc(2 * (x - whole))  # exact, where adding a half to X would be rounded itself


elementwise("sign", lambda x: array_module(x).sign(x))
elementwise("floor", lambda x: array_module(x).floor(x))
elementwise("ceil", lambda x: array_module(x).ceil(x))
elementwise("round", _rounded)


@gradient_maker("sign")
@gradient_maker("floor")
@gradient_maker("ceil")
@gradient_maker("round")
def _flat(
    inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, Sequence[str]], attrs: Mapping[str, object]
) -> list[GradOp]:
    return [GradOp("fill_zeros_like", {"X": inputs["X"]}, {"Out": [inputs["X"][0] + GRAD]}, {})]
