# SPDX-License-Identifier: Apache-2.0
"""Comparisons, whether a value is empty, and counting: what loops and branches decide by."""

from __future__ import annotations

from typing import Protocol

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable

__all__ = [
    "equal",
    "greater_equal",
    "greater_than",
    "increment",
    "is_empty",
    "less_equal",
    "less_than",
    "not_equal",
]


class _Comparison(Protocol):
    def __call__(
        self, x: Variable, y: Variable, cond: Variable | None = None, force_cpu: bool | None = None
    ) -> Variable: ...


def less_than(
    x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None
) -> Variable:
    """Return whether x is less than y, a bool an element, in `cond` if that is given."""
    return truth_of("less_than", {"X": x, "Y": y}, cond, {"force_cpu": force_cpu})


def _comparison(op_type: str) -> _Comparison:
    def layer(
        x: Variable, y: Variable, cond: Variable | None = None, force_cpu: bool | None = None
    ) -> Variable:
        return truth_of(op_type, {"X": x, "Y": y}, cond, {"force_cpu": force_cpu})

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"Return whether x is {op_type} y, a bool an element, in `cond` if that is given."
    return layer


less_equal = _comparison("less_equal")
greater_than = _comparison("greater_than")
greater_equal = _comparison("greater_equal")
equal = _comparison("equal")
not_equal = _comparison("not_equal")


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Return x + value, in x itself unless in_place is False."""
    helper = LayerHelper("increment")
    out = x if in_place else helper.create_variable_for_type_inference(x.dtype)
    helper.append_op("increment", {"X": x}, {"Out": out}, {"step": float(value)})
    return out


def truth_of(
    op_type: str,
    inputs: dict[str, Variable],
    out: Variable | None,
    attrs: dict[str, object],
    name: str | None = None,
) -> Variable:
    """Return what an operator says of each element, a bool, in `out` if that is given."""
    helper = LayerHelper(op_type, name)
    if out is None:
        out = helper.create_variable_for_type_inference("bool")
    out.stop_gradient = True
    helper.append_op(op_type, inputs, {"Out": out}, attrs)
    return out


def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Return whether x has no elements, in `cond` if that is given."""
    helper = LayerHelper("is_empty")
    out = helper.create_variable_for_type_inference("bool", stop_gradient=True) if cond is None else cond
    helper.append_op("is_empty", {"X": x}, {"Out": out})
    return out
