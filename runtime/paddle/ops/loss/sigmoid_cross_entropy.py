# SPDX-License-Identifier: Apache-2.0
"""sigmoid_cross_entropy_with_logits: -Label ln p - (1 - Label) ln(1 - p) with p = sigmoid(X), for each element."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import same


def _infer(x: Spec, label: Spec) -> Spec:
    return x._replace(shape=same(x.shape, label.shape, "X and Label"))


@operator(
    "sigmoid_cross_entropy_with_logits",
    "X Label -> Out",
    attrs={"normalize": False, "ignore_index": -100},
    infer=_infer,
)
def sigmoid_cross_entropy_with_logits(x: Array, label: Array, *, normalize: bool, ignore_index: int) -> Array:
    """Out = max(X, 0) - X Label + ln(1 + e^-|X|); 0 where Label is ignore_index."""
    xp = array_module(x)
    cost = xp.maximum(x, 0) - x * label + xp.log1p(xp.exp(-xp.abs(x)))
    return _weighted(cost, label, normalize, ignore_index)


@gradient("sigmoid_cross_entropy_with_logits", "X Label Out@GRAD -> X@GRAD")
def sigmoid_cross_entropy_with_logits_grad(
    x: Array, label: Array, dout: Array, *, normalize: bool, ignore_index: int
) -> Array:
    """dX = (sigmoid(X) - Label) dOut."""
    return _weighted((sigmoid(x) - label) * dout, label, normalize, ignore_index)


def _weighted(value: Array, label: Array, normalize: bool, ignore_index: int) -> Array:
    counted = label != ignore_index
    value *= counted
    if normalize:
        value /= value.dtype.type(max(int(counted.sum()), 1))
    return value
