# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions whose result has the shape of x, cumulative sums, and uniform random numbers."""

from __future__ import annotations

from paddle.fluid.errors import answering
from paddle.fluid.layers.plain import layer

__all__ = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "cumsum", "exp", "floor", "hard_shrink", "logsigmoid", "reciprocal",
    "round", "rsqrt", "sigmoid", "sin", "softplus", "softshrink", "softsign", "sqrt", "square", "tanh", "tanh_shrink",
    "thresholded_relu", "uniform_random",
]  # fmt: skip

abs = layer("abs(x, name=None)", "|x| of each element")
ceil = layer("ceil(x, name=None)", "each element rounded up")
exp = layer("exp(x, name=None)", "e^x of each element")
floor = layer("floor(x, name=None)", "each element rounded down")
logsigmoid = layer("logsigmoid(x, name=None)", "-ln(1 + e^-x) of each element")
reciprocal = layer("reciprocal(x, name=None)", "1/x of each element")
round = layer("round(x, name=None)", "each element rounded, halves away from zero")
sigmoid = layer("sigmoid(x, name=None)", "1/(1 + e^-x) of each element")
softplus = layer("softplus(x, name=None)", "ln(1 + e^x) of each element")
softsign = layer("softsign(x, name=None)", "x/(1 + |x|) of each element")
sqrt = layer("sqrt(x, name=None)", "the square root of each element")
square = layer("square(x, name=None)", "x² of each element")
tanh = layer("tanh(x, name=None)", "tanh x of each element")
acos = layer("acos(x, name=None)", "the arc cosine of each element")
asin = layer("asin(x, name=None)", "the arc sine of each element")
atan = layer("atan(x, name=None)", "the arc tangent of each element")
cos = layer("cos(x, name=None)", "the cosine of each element")
rsqrt = layer("rsqrt(x, name=None)", "1/√x of each element")
sin = layer("sin(x, name=None)", "the sine of each element")
tanh_shrink = layer("tanh_shrink(x, name=None)", "x − tanh x of each element")
softshrink = layer(
    "softshrink(x, name=None, alpha=None)",
    "x moved towards zero by alpha (None: 0.5), and zero where |x| is below alpha",
    to="alpha=lambda",
)
hard_shrink = layer(
    "hard_shrink(x, threshold=None, name=None)", "x, or zero where |x| is at most the threshold (None: 0.5)"
)
thresholded_relu = layer(
    "thresholded_relu(x, threshold=None, name=None)", "x above the threshold (None: 1), else zero"
)
cumsum = layer(
    "cumsum(x, axis=None, exclusive=None, reverse=None)",
    "cumulative sums along an axis (None: the last), without the value itself if "
    "exclusive, from the end if reverse",
)
uniform_random = layer(
    "uniform_random(shape, dtype='float32', min=-1.0, max=1.0, seed=0)",
    "uniform random numbers in [min, max), drawn anew in each step",
)

__getattr__ = answering(__name__, "paddle.fluid.layers")
