# SPDX-License-Identifier: Apache-2.0
"""``paddle.op``: activations as separate layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle.signatures import function
from paddle.v2 import activation, model
from paddle.v2.layer.mixed import mixed
from paddle.v2.layer.output import LayerOutput
from paddle.v2.layer.projection import identity_projection

__all__ = ["abs", "exp", "log", "reciprocal", "relu", "sigmoid", "softmax", "sqrt", "square", "tanh"]


def _unary(prefix: str, act: type[activation.Base]) -> Callable[..., LayerOutput]:
    def declare(given: dict[str, Any]) -> LayerOutput:
        name = model.current().auto_name(prefix, given["name"])
        return mixed(input=[identity_projection(given["input"])], name=name, act=act())

    return function(
        f"{prefix}(input, name=None)", f"Declare an activation of a layer: {act.__doc__}", declare
    )


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
