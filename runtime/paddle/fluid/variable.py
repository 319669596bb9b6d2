# SPDX-License-Identifier: Apache-2.0
"""Variable and Parameter: the core's, with what Fluid scripts know of them and with arithmetic.

`a + b` and its like append operators to the current block of the variable's program; see
`variable_arithmetic`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle import graph
from paddle.fluid.var_type import VarType

if TYPE_CHECKING:
    from paddle.fluid.clip import ErrorClip, GradientClip
    from paddle.fluid.operator import Operator
    from paddle.fluid.regularizer import Regularizer


class Variable(graph.Variable):
    """One value of a block.

    Attributes:
        type: what it is: LOD_TENSOR, SELECTED_ROWS, LOD_TENSOR_ARRAY, ...
        is_data: it is fed.
        error_clip: bounds its gradient while it is propagated, or None.
        op: the operator that writes it, if it was made by one.
    """

    type: VarType = VarType.LOD_TENSOR
    is_data: bool = False
    error_clip: ErrorClip | None = None
    op: Operator | None = None

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Return a description for people."""
        return self.describe() + (
            f" type={self.type.name} lod_level={self.lod_level}" if with_details else ""
        )


class Parameter(Variable, graph.Parameter):
    """A variable that training changes, with what optimizers are to know of it."""

    @property
    def optimize_attr(self) -> dict[str, object]:
        """`learning_rate`: factor on the optimizer's rate, or a variable to be used instead of it."""
        found = self.attributes.get("optimize_attr")
        return dict(found) if isinstance(found, dict) else {"learning_rate": 1.0}

    @property
    def regularizer(self) -> Regularizer | None:
        """Its own regularizer, which goes before the optimizer's."""
        return self.attributes.get("regularizer")  # type: ignore[return-value]

    @property
    def gradient_clip_attr(self) -> GradientClip | None:
        """How its gradient is clipped, or None."""
        return self.attributes.get("gradient_clip_attr")  # type: ignore[return-value]

    @property
    def do_model_average(self) -> bool:
        """Whether model averaging takes it in."""
        return bool(self.attributes.get("do_model_average", True))

    def with_attribute(self, name: str, value: object) -> None:
        """Set one of the attributes."""
        self.attributes = {**self.attributes, name: value}
