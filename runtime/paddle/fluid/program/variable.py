# SPDX-License-Identifier: Apache-2.0
"""Variable and Parameter: the core's, with what Fluid scripts know of them and with arithmetic.

`a + b` and its like append operators to the current block of the variable's program; see
`arithmetic`. `==` compares objects: `layers.equal` compares values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from paddle import graph
from paddle.fluid.program.arithmetic import binary, cast_to, sliced
from paddle.fluid.program.descriptions import VariableDesc
from paddle.fluid.program.var_type import VarType

if TYPE_CHECKING:
    from paddle.fluid.clip import ErrorClip, GradientClip
    from paddle.fluid.program.operator import Operator
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

    __add__ = binary("elementwise_add")
    __radd__ = binary("elementwise_add")
    __sub__ = binary("elementwise_sub")
    __rsub__ = binary("elementwise_sub", reverse=True)
    __mul__ = binary("elementwise_mul")
    __rmul__ = binary("elementwise_mul")
    __truediv__ = binary("elementwise_div")
    __rtruediv__ = binary("elementwise_div", reverse=True)
    __pow__ = binary("elementwise_pow")
    __rpow__ = binary("elementwise_pow", reverse=True)
    __floordiv__ = binary("elementwise_floordiv")
    __mod__ = binary("elementwise_mod")
    __lt__ = binary("less_than")
    __le__ = binary("less_equal")
    __gt__ = binary("greater_than")
    __ge__ = binary("greater_equal")

    def __iter__(self) -> Any:
        """Raise: items are computed by operators, so a loop would not end.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"variable {self.name!r} cannot be iterated over: use layers.split or layers.unstack")

    def __getitem__(self, item: Any) -> Any:
        """Append a slice and return its output: whole numbers and slices of step 1, one for each of the first axes."""
        return sliced(self, item)

    @property
    def desc(self) -> VariableDesc:
        """See `descriptions`."""
        return VariableDesc(self)

    def astype(self, dtype: npt.DTypeLike) -> Variable:
        """Append a cast and return its output."""
        return cast_to(self, dtype)

    @property
    def error_bounds(self) -> Mapping[str, float] | None:
        """See the core; only where `error_clip` is set."""
        return None if self.error_clip is None else self.error_clip.bounds

    def _set_error_clip(self, error_clip: ErrorClip) -> None:
        self.error_clip = error_clip

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
