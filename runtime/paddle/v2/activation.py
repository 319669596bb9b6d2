# SPDX-License-Identifier: Apache-2.0
"""Activation classes: markers that a layer takes as ``act``; the operators live in ``layer/activate.py``."""

from __future__ import annotations


class Base:
    """An activation; ``name`` is what configurations store."""

    name = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Tanh(Base):
    """tanh(x)."""

    name = "tanh"


class Sigmoid(Base):
    """1 / (1 + exp(-x))."""

    name = "sigmoid"


class Softmax(Base):
    """exp(x) over its row sum."""

    name = "softmax"


class Linear(Base):
    """X itself."""

    name = ""


Identity = Linear


class SequenceSoftmax(Base):
    """Softmax over each sequence of a size-1 layer."""

    name = "sequence_softmax"


class Exp(Base):
    """exp(x)."""

    name = "exponential"


class Relu(Base):
    """max(x, 0)."""

    name = "relu"


class BRelu(Base):
    """X cut to [0, 24]."""

    name = "brelu"


class SoftRelu(Base):
    """ln(1 + exp(x)), x cut to [-40, 40]."""

    name = "softrelu"


class STanh(Base):
    """1.7159 * tanh(2x / 3)."""

    name = "stanh"


class Abs(Base):
    """|x|."""

    name = "abs"


class Square(Base):
    """X squared."""

    name = "square"


class Log(Base):
    """ln(x)."""

    name = "log"


class Sqrt(Base):
    """Square root of x."""

    name = "sqrt"


class Reciprocal(Base):
    """1 / x."""

    name = "reciprocal"


class SoftSign(Base):
    """x / (1 + |x|)."""

    name = "softsign"
