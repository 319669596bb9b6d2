# SPDX-License-Identifier: Apache-2.0
"""teacher_student_sigmoid_loss: sigmoid cross entropy with a click and, if present, a teacher's score.

Label encodes both. Without a score, -2 means no click and -1 a click. With a score q in [0, 1], q means no click and 1
+ q a click.
"""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.shapes import same

_ATTRS = {"soft_max_up_bound": 15.0, "soft_max_lower_bound": -15.0}


@operator(
    "teacher_student_sigmoid_loss",
    "X Label -> Y",
    attrs=_ATTRS,
    infer="X(...), Label(...) -> X(...)",
    fresh=True,
)
def teacher_student_sigmoid_loss(x: Array, label: Array) -> Array:
    """Return Y = Σ (max(X, 0) - X z + ln(1 + e^-|X|)) over the targets z: the click and, if present, the score."""
    same(x.shape, label.shape, "X and Label")
    xp = array_module(x)
    entropy = xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))
    terms = 1 + (label >= 0)
    return (terms * entropy - x * _targets(label)).astype(x.dtype, copy=False)


@gradient("teacher_student_sigmoid_loss", "X Label Y@GRAD -> X@GRAD", fresh=True)
def teacher_student_sigmoid_loss_grad(
    x: Array, label: Array, dy: Array, *, soft_max_up_bound: float, soft_max_lower_bound: float
) -> Array:
    """Return dX = (n sigmoid(X) - Σ z) dY for n terms with targets z, and 0 where X reaches a bound."""
    inside = (x < soft_max_up_bound) & (x > soft_max_lower_bound)
    slope = (1 + (label >= 0)) * sigmoid(x) - _targets(label)
    return (slope * inside * dy).astype(x.dtype, copy=False)


def _targets(label: Array) -> Array:
    """Return the sum of click and score."""
    return array_module(label).where(label >= 0, label, (label >= -1).astype(label.dtype))
