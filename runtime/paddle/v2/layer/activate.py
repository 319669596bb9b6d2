# SPDX-License-Identifier: Apache-2.0
"""Operators behind the activation classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from paddle.graph import Variable
    from paddle.v2.layer.emitter import Emitter

Activate: TypeAlias = "Callable[[Emitter, Variable], Variable]"


def _plain(kind: str, **attrs: float) -> Activate:
    def activate(emitter: Emitter, value: Variable) -> Variable:
        return emitter.op(kind, {"X": value}, attrs)

    return activate


def _softmax(emitter: Emitter, value: Variable) -> Variable:
    return emitter.op("softmax", {"X": value}, {"axis": -1})


ACTIVATIONS: Mapping[str, Activate] = {
    "tanh": _plain("tanh"),
    "sigmoid": _plain("sigmoid"),
    "softmax": _softmax,
    "sequence_softmax": _plain("sequence_softmax"),
    "exponential": _plain("exp"),
    "relu": _plain("relu"),
    "brelu": _plain("brelu", t_min=0.0, t_max=24.0),
    "softrelu": _plain("soft_relu", threshold=40.0),
    "stanh": _plain("stanh", scale_a=2.0 / 3.0, scale_b=1.7159),
    "abs": _plain("abs"),
    "square": _plain("square"),
    "log": _plain("log"),
    "sqrt": _plain("sqrt"),
    "reciprocal": _plain("reciprocal"),
    "softsign": _plain("softsign"),
}
