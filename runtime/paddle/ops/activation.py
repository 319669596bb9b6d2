# SPDX-License-Identifier: Apache-2.0
"""Activations without attributes: Out = f(X), element by element."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.registry import Spec, gradient, operator


def same_as_input(x: Spec) -> Spec:
    """Shape rule of every activation."""
    return x


@operator("sigmoid", "X -> Out", infer=same_as_input)
def sigmoid(x: Array) -> Array:
    """Out = 1 / (1 + e^-X)."""
    xp = array_module(x)
    out: Array = xp.negative(x)
    xp.exp(out, out=out)
    out += 1
    xp.reciprocal(out, out=out)
    return out


@gradient("sigmoid", "Out Out@GRAD -> X@GRAD")
def sigmoid_grad(out: Array, dout: Array) -> Array:
    """dX = dOut Out (1 - Out)."""
    dx: Array = 1 - out
    dx *= out
    dx *= dout
    return dx
