# SPDX-License-Identifier: Apache-2.0
"""``paddle.op``: activations as layers of their own."""

from __future__ import annotations

from paddle.v2 import activation, model
from paddle.v2.layer.mixed import mixed
from paddle.v2.layer.output import LayerOutput
from paddle.v2.layer.projection import identity_projection


def _unary(prefix: str, act: activation.Base, layer: LayerOutput, name: str | None) -> LayerOutput:
    name = model.current().auto_name(prefix, name)
    return mixed(input=[identity_projection(layer)], name=name, act=act)


def exp(input: LayerOutput, name: str | None = None) -> LayerOutput:
    """Declare e^x."""
    return _unary("exp", activation.Exp(), input, name)


def log(input: LayerOutput, name: str | None = None) -> LayerOutput:
    """Declare ln(x)."""
    return _unary("log", activation.Log(), input, name)


def abs(input: LayerOutput, name: str | None = None) -> LayerOutput:
    """Declare |x|."""
    return _unary("abs", activation.Abs(), input, name)


def sigmoid(input: LayerOutput, name: str | None = None) -> LayerOutput:
    """Declare 1 / (1 + e^-x)."""
    return _unary("sigmoid", activation.Sigmoid(), input, name)


def tanh(input: LayerOutput, name: str | None = None) -> LayerOutput:
    """Declare tanh(x)."""
    return _unary("tanh", activation.Tanh(), input, name)


def square(input: LayerOutput, name: str | None = None) -> LayerOutput:
    """Declare x squared."""
    return _unary("square", activation.Square(), input, name)


def relu(input: LayerOutput, name: str | None = None) -> LayerOutput:
    """Declare max(x, 0)."""
    return _unary("relu", activation.Relu(), input, name)


def sqrt(input: LayerOutput, name: str | None = None) -> LayerOutput:
    """Declare the square root of x."""
    return _unary("sqrt", activation.Sqrt(), input, name)


def reciprocal(input: LayerOutput, name: str | None = None) -> LayerOutput:
    """Declare 1 / x."""
    return _unary("reciprocal", activation.Reciprocal(), input, name)


def softmax(input: LayerOutput, name: str | None = None) -> LayerOutput:
    """Declare e^x over its row sum."""
    return _unary("softmax", activation.Softmax(), input, name)
