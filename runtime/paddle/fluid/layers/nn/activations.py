# SPDX-License-Identifier: Apache-2.0
"""Activations that have numbers or parameters of their own, and softmax."""

from __future__ import annotations

from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.ops import function
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.program.variable import Variable

__all__ = [
    "brelu",
    "elu",
    "hard_sigmoid",
    "leaky_relu",
    "log",
    "maxout",
    "pow",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sign",
    "soft_relu",
    "softmax",
    "stanh",
    "swish",
]

log = function("log")
relu = function("relu")
sign = function("sign")


def softmax(input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1) -> Variable:
    """Return e^x over its sum along an axis."""
    return LayerHelper("softmax", name).apply("softmax", {"X": input}, {"axis": axis}, dtype=input.dtype)


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Return x where it is positive, else α(e^x − 1)."""
    return LayerHelper("elu", name).apply("elu", {"X": x}, {"alpha": alpha}, dtype=x.dtype)


def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """Return min(max(0, x), threshold)."""
    return LayerHelper("relu6", name).apply("relu6", {"X": x}, {"threshold": threshold}, dtype=x.dtype)


def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """Return x where it is positive, else αx."""
    return LayerHelper("leaky_relu", name).apply("leaky_relu", {"X": x}, {"alpha": alpha}, dtype=x.dtype)


def brelu(x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """Return x cut to [t_min, t_max]."""
    attrs = {"t_min": t_min, "t_max": t_max}
    return LayerHelper("brelu", name).apply("brelu", {"X": x}, attrs, dtype=x.dtype)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """Return ln(1 + e^x) with x cut to ±threshold."""
    attrs = {"threshold": threshold}
    return LayerHelper("soft_relu", name).apply("soft_relu", {"X": x}, attrs, dtype=x.dtype)


def stanh(
    x: Variable, scale_a: float = 2.0 / 3.0, scale_b: float = 1.7159, name: str | None = None
) -> Variable:
    """Return b tanh(ax)."""
    attrs = {"scale_a": scale_a, "scale_b": scale_b}
    return LayerHelper("stanh", name).apply("stanh", {"X": x}, attrs, dtype=x.dtype)


def hard_sigmoid(x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """Return slope x + offset, cut to [0, 1]."""
    attrs = {"slope": slope, "offset": offset}
    return LayerHelper("hard_sigmoid", name).apply("hard_sigmoid", {"X": x}, attrs, dtype=x.dtype)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """Return x sigmoid(βx)."""
    return LayerHelper("swish", name).apply("swish", {"X": x}, {"beta": beta}, dtype=x.dtype)


def pow(x: Variable, factor: float = 1.0, name: str | None = None) -> Variable:
    """Return x to the power `factor`."""
    return LayerHelper("pow", name).apply("pow", {"X": x}, {"factor": factor}, dtype=x.dtype)


def maxout(x: Variable, groups: int, name: str | None = None) -> Variable:
    """Return the greatest of each group of channels."""
    return LayerHelper("maxout", name).apply("maxout", {"X": x}, {"groups": groups}, dtype=x.dtype)


def prelu(x: Variable, mode: str, param_attr: ParamAttrLike = None, name: str | None = None) -> Variable:
    """Return x where it is positive, else αx with α learnt: one ("all"), a channel each, or an element each."""
    from_shape = {"all": (1,), "channel": (1, x.shape[1], 1, 1), "element": (1, *x.shape[1:])}
    helper = LayerHelper("prelu", name, param_attr=param_attr)
    initial = Constant(0.25)
    alpha = helper.create_parameter(helper.param_attr or True, from_shape[mode], x.dtype, False, initial)
    return helper.apply("prelu", {"X": x, "Alpha": alpha}, {"mode": mode}, dtype=x.dtype)


def selu(
    x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None
) -> Variable:
    """Return scale x, or scale alpha (e^x - 1) below zero; None: the numbers that keep mean and variance."""
    attrs = {"scale": scale, "alpha": alpha}
    return LayerHelper("selu", name).apply("selu", {"X": x}, attrs, dtype=x.dtype)
