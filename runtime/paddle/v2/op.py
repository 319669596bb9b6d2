# SPDX-License-Identifier: Apache-2.0
"""``paddle.op``: activations as layers of their own."""

from __future__ import annotations

from typing import Protocol

from paddle.v2 import activation, model
from paddle.v2.layer.mixed import mixed
from paddle.v2.layer.output import LayerOutput
from paddle.v2.layer.projection import identity_projection


class _Unary(Protocol):
    def __call__(self, input: LayerOutput, name: str | None = None) -> LayerOutput: ...


def _unary(prefix: str, act: type[activation.Base]) -> _Unary:
    def declare(input: LayerOutput, name: str | None = None) -> LayerOutput:
        name = model.current().auto_name(prefix, name)
        return mixed(input=[identity_projection(input)], name=name, act=act())

    declare.__name__ = declare.__qualname__ = prefix
    declare.__doc__ = f"Declare an activation of a layer: {act.__doc__}"
    return declare


exp = _unary("exp", activation.Exp)
log = _unary("log", activation.Log)
abs = _unary("abs", activation.Abs)
sigmoid = _unary("sigmoid", activation.Sigmoid)
tanh = _unary("tanh", activation.Tanh)
square = _unary("square", activation.Square)
relu = _unary("relu", activation.Relu)
sqrt = _unary("sqrt", activation.Sqrt)
reciprocal = _unary("reciprocal", activation.Reciprocal)
softmax = _unary("softmax", activation.Softmax)
