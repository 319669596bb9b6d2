# SPDX-License-Identifier: Apache-2.0
"""Activation classes for the argument ``act`` of layers; each is a table row that names the operator."""

from __future__ import annotations

from collections.abc import Mapping


class Base:
    """Base class of activations; ``name`` is the name in configurations."""

    name = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


OPERATORS: dict[str, tuple[str, Mapping[str, float]]] = {}
"""Name of an activation -> its operator and that one's attributes."""


def _activation(kind: str, name: str, operator: str, formula: str, **attrs: float) -> type[Base]:
    OPERATORS[name] = operator, attrs
    return type(kind, (Base,), {"__doc__": formula, "__module__": __name__, "name": name})


class Linear(Base):
    """The linear activation, y = x (no activation)."""


Identity = Linear
Tanh = _activation("Tanh", "tanh", "tanh", "tanh(x).")
Sigmoid = _activation("Sigmoid", "sigmoid", "sigmoid", "1 / (1 + exp(-x)).")
Softmax = _activation("Softmax", "softmax", "softmax", "exp(x) divided by its sum over the row.", axis=-1)
SequenceSoftmax = _activation(
    "SequenceSoftmax", "sequence_softmax", "sequence_softmax", "Softmax over each sequence of a size-1 layer."
)
Exp = _activation("Exp", "exponential", "exp", "exp(x).")
Relu = _activation("Relu", "relu", "relu", "max(x, 0).")
BRelu = _activation("BRelu", "brelu", "brelu", "x clipped to [0, 24].", t_min=0.0, t_max=24.0)
SoftRelu = _activation(
    "SoftRelu", "softrelu", "soft_relu", "ln(1 + exp(x)), with x clipped to [-40, 40].", threshold=40.0
)
STanh = _activation("STanh", "stanh", "stanh", "1.7159 * tanh(2x / 3).", scale_a=2.0 / 3.0, scale_b=1.7159)
Abs = _activation("Abs", "abs", "abs", "|x|.")
Square = _activation("Square", "square", "square", "X squared.")
Log = _activation("Log", "log", "log", "ln(x).")
Sqrt = _activation("Sqrt", "sqrt", "sqrt", "The square root of x.")
Reciprocal = _activation("Reciprocal", "reciprocal", "reciprocal", "1 / x.")
SoftSign = _activation("SoftSign", "softsign", "softsign", "x / (1 + |x|).")
