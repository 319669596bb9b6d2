# SPDX-License-Identifier: Apache-2.0
"""Element-wise functions without attributes: activations, trigonometry, rounding.

The table rows give Out in terms of X, and dX in terms of X or Out and of dOut. Functions that need more than one line,
or work in place, are defined below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.registry import GRAD, NO_SLOTS, GradOp, Names, gradient, gradient_maker, operator
from paddle.ops.base.second import curved


def elementwise(
    op_type: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    *,
    of: str = "X",
    attrs: Mapping[str, object] | None = None,
    fresh: bool = True,
) -> None:
    """Register an element-wise function, X -> Out, with its gradient.

    Args:
        backward: a kernel of the values listed in `of`, Out@GRAD and attributes; None means no gradient.
        of: "X", "Out" or "X Out".
        attrs: the attributes; see `operator`.
        fresh: see `OpDef`.
    """
    operator(op_type, "X -> Out", attrs=attrs, infer="X", fresh=fresh)(forward)
    if backward is not None:
        gradient(op_type, f"{of} Out@GRAD -> X@GRAD", fresh=fresh)(backward)


@operator("sigmoid", "X -> Out", infer="X", fresh=True)
def sigmoid(x: Array, *, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Return the logistic function Out = 1 / (1 + e^-X)."""
    xp = array_module(x)
    out = xp.negative(x, out=x if "X" in spent else None)
    xp.exp(out, out=out)
    out += 1
    xp.reciprocal(out, out=out)
    return out


@gradient("sigmoid", "Out Out@GRAD -> X@GRAD", fresh=True)
def sigmoid_grad(out: Array, dout: Array) -> Array:
    """Return dX = dOut Out (1 - Out)."""
    dx = 1 - out
    dx *= out
    dx *= dout
    return dx


@operator("tanh", "X -> Out", infer="X", fresh=True)
def tanh(x: Array, *, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Return the hyperbolic tangent Out = tanh X."""
    return array_module(x).tanh(x, out=x if "X" in spent else None)


@gradient("tanh", "Out Out@GRAD -> X@GRAD", fresh=True)
def tanh_grad(out: Array, dout: Array) -> Array:
    """Return dX = dOut (1 - Out²)."""
    dx = out * out
    array_module(dx).subtract(1, dx, out=dx)
    dx *= dout
    return dx


@operator("relu", "X -> Out", infer="X", fresh=True)
def relu(x: Array, *, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Return the rectified linear unit Out = max(X, 0)."""
    return array_module(x).maximum(x, 0, out=x if "X" in spent else None)


@gradient("relu", "Out Out@GRAD -> X@GRAD", fresh=True)
def relu_grad(out: Array, dout: Array, *, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Return dX = dOut where Out > 0."""
    return array_module(out).multiply(dout, out > 0, out=dout if "Out@GRAD" in spent else None)


@operator("square", "X -> Out", infer="X", fresh=True)
def square(x: Array) -> Array:
    """Return the square Out = X² of each element."""
    return x * x


@gradient("square", "X Out@GRAD -> X@GRAD", fresh=True)
def square_grad(x: Array, dout: Array) -> Array:
    """Return dX = 2 X dOut."""
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


def _rounded(x: Array) -> Array:
    """Return the nearest integers, with halves rounded away from zero as in C."""
    xp = array_module(x)
    whole = xp.trunc(x)
    return whole + xp.trunc(2 * (x - whole))  # exact; adding one half to X would itself be rounded


elementwise("sign", lambda x: array_module(x).sign(x))
elementwise("floor", lambda x: array_module(x).floor(x))
elementwise("ceil", lambda x: array_module(x).ceil(x))
elementwise("round", _rounded)


@gradient_maker("sign")
@gradient_maker("floor")
@gradient_maker("ceil")
@gradient_maker("round")
def _flat(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
    return [GradOp("fill_zeros_like", {"X": inputs["X"]}, {"Out": [inputs["X"][0] + GRAD]}, {})]


# Second derivatives, in terms of the value that the gradient reads, X or Out. None: zero almost everywhere.
for _type, _curve in {
    "relu": None,
    "abs": None,
    "sigmoid": lambda out: 1 - 2 * out,
    "tanh": lambda out: -2 * out,
    "square": lambda x: 2,
    "exp": lambda out: 1,
    "log": lambda x: -1 / (x * x),
    "sqrt": lambda out: -0.5 / (out * out),
    "rsqrt": lambda out: -1.5 * out * out,
    "reciprocal": lambda out: -2 * out,
    "sin": lambda x: -array_module(x).sin(x),
    "cos": lambda x: -array_module(x).cos(x),
    "softplus": lambda x: (s := sigmoid(x)) * (1 - s),
    "logsigmoid": lambda x: (s := sigmoid(x)) * (s - 1),
}.items():
    curved(_type, _curve)
