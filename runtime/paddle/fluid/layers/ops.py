# SPDX-License-Identifier: Apache-2.0
"""Functions of single elements, as the operators of one input and no parameter are; running sums, uniform numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy.typing as npt

from paddle.fluid.absent import answering
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable
from paddle.ops.base.dtypes import VarType

__all__ = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cumsum",
    "exp",
    "floor",
    "hard_shrink",
    "logsigmoid",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sin",
    "softplus",
    "softshrink",
    "softsign",
    "sqrt",
    "square",
    "tanh",
    "tanh_shrink",
    "thresholded_relu",
    "uniform_random",
]


class _Function(Protocol):
    def __call__(self, x: Variable, name: str | None = None) -> Variable: ...


def function(op_type: str) -> _Function:
    """Return the layer of an operator without attributes."""

    def layer(x: Variable, name: str | None = None) -> Variable:
        return LayerHelper(op_type, name).apply(op_type, {"X": x}, dtype=x.dtype)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"Return {op_type} of each element."
    return layer


abs = function("abs")
ceil = function("ceil")
exp = function("exp")
floor = function("floor")
logsigmoid = function("logsigmoid")
reciprocal = function("reciprocal")
round = function("round")
sigmoid = function("sigmoid")
softplus = function("softplus")
softsign = function("softsign")
sqrt = function("sqrt")
square = function("square")
tanh = function("tanh")
acos = function("acos")
asin = function("asin")
atan = function("atan")
cos = function("cos")
rsqrt = function("rsqrt")
sin = function("sin")
tanh_shrink = function("tanh_shrink")


def softshrink(x: Variable, name: str | None = None, alpha: float | None = None) -> Variable:
    """Return x moved towards zero by alpha (None: 0.5), and zero within it."""
    attrs = {"lambda": alpha}
    return LayerHelper("softshrink", name).apply("softshrink", {"X": x}, attrs, dtype=x.dtype)


def hard_shrink(x: Variable, threshold: float | None = None, name: str | None = None) -> Variable:
    """Return x, or zero within the threshold (None: 0.5)."""
    attrs = {"threshold": threshold}
    return LayerHelper("hard_shrink", name).apply("hard_shrink", {"X": x}, attrs, dtype=x.dtype)


def thresholded_relu(x: Variable, threshold: float | None = None, name: str | None = None) -> Variable:
    """Return x above the threshold (None: 1), else zero."""
    attrs = {"threshold": threshold}
    return LayerHelper("thresholded_relu", name).apply("thresholded_relu", {"X": x}, attrs, dtype=x.dtype)


def cumsum(
    x: Variable, axis: int | None = None, exclusive: bool | None = None, reverse: bool | None = None
) -> Variable:
    """Return running sums along an axis (None: the last), without the value itself if exclusive, from the end if
    reverse."""
    attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    return LayerHelper("cumsum").apply("cumsum", {"X": x}, attrs, dtype=x.dtype)


def uniform_random(
    shape: Sequence[int],
    dtype: npt.DTypeLike = "float32",
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Return numbers uniform in [min, max), others in each step."""
    attrs = {
        "shape": tuple(shape),
        "dtype": VarType.of(dtype),
        "min": float(min),
        "max": float(max),
        "seed": seed,
    }
    return LayerHelper("uniform_random").apply("uniform_random", {}, attrs, dtype=dtype)


__getattr__ = answering(__name__, "paddle.fluid.layers")
