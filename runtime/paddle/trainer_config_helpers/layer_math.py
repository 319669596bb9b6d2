# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions of layers, as in ``paddle.v2.op``, and arithmetic operators (+, -, *) of layers."""

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
