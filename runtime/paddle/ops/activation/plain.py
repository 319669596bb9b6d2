# SPDX-License-Identifier: Apache-2.0
"""Activations without attributes: Out = f(X), element by element; `bounded` has those with attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddle.backend import Array, array_module
from paddle.ops.base.registry import GRAD, NO_SLOTS, GradOp, Spec, gradient, gradient_maker, operator


def same_as_input(x: Spec) -> Spec:
    """Shape rule of every activation."""
    return x


@operator("sigmoid", "X -> Out", infer=same_as_input, fresh=True)
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


@operator("logsigmoid", "X -> Out", infer=same_as_input, fresh=True)
def logsigmoid(x: Array) -> Array:
    """Out = -ln(1 + e^-X)."""
    return -array_module(x).logaddexp(-x, 0).astype(x.dtype, copy=False)


@gradient("logsigmoid", "X Out@GRAD -> X@GRAD", fresh=True)
def logsigmoid_grad(x: Array, dout: Array) -> Array:
    """dX = dOut sigmoid(-X)."""
    return dout * sigmoid(-x)


@operator("tanh", "X -> Out", infer=same_as_input, fresh=True)
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


@operator("relu", "X -> Out", infer=same_as_input, fresh=True)
def relu(x: Array, *, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Out = max(X, 0)."""
    return array_module(x).maximum(x, 0, out=x if "X" in spent else None)


@gradient("relu", "Out Out@GRAD -> X@GRAD", fresh=True)
def relu_grad(out: Array, dout: Array, *, spent: frozenset[str] = NO_SLOTS) -> Array:
    """dX = dOut where Out > 0."""
    return array_module(out).multiply(dout, out > 0, out=dout if "Out@GRAD" in spent else None)


@operator("exp", "X -> Out", infer=same_as_input, fresh=True)
def exp(x: Array) -> Array:
    """Out = e^X."""
    return array_module(x).exp(x)


@gradient("exp", "Out Out@GRAD -> X@GRAD", fresh=True)
def exp_grad(out: Array, dout: Array) -> Array:
    """dX = dOut Out."""
    return dout * out


@operator("log", "X -> Out", infer=same_as_input, fresh=True)
def log(x: Array) -> Array:
    """Out = ln X."""
    return array_module(x).log(x)


@gradient("log", "X Out@GRAD -> X@GRAD", fresh=True)
def log_grad(x: Array, dout: Array) -> Array:
    """dX = dOut / X."""
    return dout / x


@operator("sqrt", "X -> Out", infer=same_as_input, fresh=True)
def sqrt(x: Array) -> Array:
    """Out = √X."""
    return array_module(x).sqrt(x)


@gradient("sqrt", "Out Out@GRAD -> X@GRAD", fresh=True)
def sqrt_grad(out: Array, dout: Array) -> Array:
    """dX = dOut / (2 Out)."""
    return dout / (2 * out)


@operator("abs", "X -> Out", infer=same_as_input, fresh=True)
def abs_(x: Array) -> Array:
    """Out = |X|."""
    return array_module(x).abs(x)


@gradient("abs", "X Out@GRAD -> X@GRAD", fresh=True)
def abs_grad(x: Array, dout: Array) -> Array:
    """dX = dOut sign X."""
    return dout * array_module(x).sign(x)


@operator("square", "X -> Out", infer=same_as_input, fresh=True)
def square(x: Array) -> Array:
    """Out = X²."""
    return x * x


@gradient("square", "X Out@GRAD -> X@GRAD", fresh=True)
def square_grad(x: Array, dout: Array) -> Array:
    """dX = 2 X dOut."""
    dx = dout * x
    dx *= 2
    return dx


@operator("reciprocal", "X -> Out", infer=same_as_input, fresh=True)
def reciprocal(x: Array) -> Array:
    """Out = 1 / X."""
    return array_module(x).reciprocal(x)


@gradient("reciprocal", "Out Out@GRAD -> X@GRAD", fresh=True)
def reciprocal_grad(out: Array, dout: Array) -> Array:
    """dX = -dOut Out²."""
    return -dout * out * out


@operator("softsign", "X -> Out", infer=same_as_input, fresh=True)
def softsign(x: Array) -> Array:
    """Out = X / (1 + |X|)."""
    return x / (1 + array_module(x).abs(x))


@gradient("softsign", "X Out@GRAD -> X@GRAD", fresh=True)
def softsign_grad(x: Array, dout: Array) -> Array:
    """dX = dOut / (1 + |X|)²."""
    return dout / (1 + array_module(x).abs(x)) ** 2


@operator("softplus", "X -> Out", infer=same_as_input, fresh=True)
def softplus(x: Array) -> Array:
    """Out = ln(1 + e^X)."""
    return array_module(x).logaddexp(x, 0).astype(x.dtype, copy=False)


@gradient("softplus", "X Out@GRAD -> X@GRAD", fresh=True)
def softplus_grad(x: Array, dout: Array) -> Array:
    """dX = dOut sigmoid(X)."""
    return dout * sigmoid(x)


@operator("sign", "X -> Out", infer=same_as_input, fresh=True)
def sign(x: Array) -> Array:
    """Out = -1, 0 or 1."""
    return array_module(x).sign(x)


@operator("floor", "X -> Out", infer=same_as_input, fresh=True)
def floor(x: Array) -> Array:
    """Out = the greatest whole number not above X."""
    return array_module(x).floor(x)


@operator("ceil", "X -> Out", infer=same_as_input, fresh=True)
def ceil(x: Array) -> Array:
    """Out = the smallest whole number not below X."""
    return array_module(x).ceil(x)


@operator("round", "X -> Out", infer=same_as_input, fresh=True)
def round_(x: Array) -> Array:
    """Out = the nearest whole number, halves away from zero as in C."""
    xp = array_module(x)
    whole = xp.trunc(x)
    return whole + xp.trunc(2 * (x - whole))  # exact, where adding a half to X would be rounded itself


@gradient_maker("sign")
@gradient_maker("floor")
@gradient_maker("ceil")
@gradient_maker("round")
def _flat(
    inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, Sequence[str]], attrs: Mapping[str, object]
) -> list[GradOp]:
    return [GradOp("fill_zeros_like", {"X": inputs["X"]}, {"Out": [inputs["X"][0] + GRAD]}, {})]
