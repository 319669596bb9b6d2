# SPDX-License-Identifier: Apache-2.0
"""Functions of a layer, element by element, as ``paddle.v2.op`` has them; + - * are operators of layers."""

from __future__ import annotations

from paddle.v2.op import abs, exp, log, reciprocal, relu, sigmoid, softmax, sqrt, square, tanh

__all__ = [
    "abs",
    "exp",
    "log",
    "reciprocal",
    "relu",
    "sigmoid",
    "softmax",
    "sqrt",
    "square",
    "tanh",
]
