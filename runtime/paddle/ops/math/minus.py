# SPDX-License-Identifier: Apache-2.0
"""minus: Out = X - Y of equal shapes, from programs that predate elementwise_sub."""

from __future__ import annotations

from collections.abc import Mapping

from paddle.backend import Array
from paddle.ops.base.registry import GRAD, GradOp, Names, gradient_maker, operator
from paddle.ops.base.shapes import same


@operator("minus", "X Y -> Out", infer="X(...), Y(...) -> X(...)", fresh=True)
def minus(x: Array, y: Array) -> Array:
    """Return the elementwise difference X - Y."""
    same(x.shape, y.shape, "X and Y")
    return x - y


@gradient_maker("minus")
def _gradient(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
    """Return dX = dOut, dY = -dOut."""
    dout = {"X": [name + GRAD for name in outputs["Out"]]}
    return [
        GradOp("scale", dout, {"Out": [name + GRAD for name in inputs[slot]]}, {"scale": factor})
        for slot, factor in (("X", 1.0), ("Y", -1.0))
    ]
