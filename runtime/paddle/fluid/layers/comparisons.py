# SPDX-License-Identifier: Apache-2.0
"""Comparisons and logic of elements, and increment."""

from __future__ import annotations

from typing import Protocol

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable

__all__ = [
    "equal",
    "greater_equal",
    "greater_than",
    "increment",
    "less_equal",
    "less_than",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
]


class _Comparison(Protocol):
    def __call__(
        self, x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None
    ) -> Variable: ...


class _Logic(Protocol):
    def __call__(
        self, x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
    ) -> Variable: ...


def _comparison(op_type: str) -> _Comparison:
    def layer(
        x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None
    ) -> Variable:
        return _into(op_type, {"X": x, "Y": y}, cond, {"force_cpu": force_cpu})

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"Return whether x is {op_type} y, a bool an element, in `cond` if that is given."
    return layer


def _logic(op_type: str) -> _Logic:
    def layer(x: Variable, y: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
        return _into(op_type, {"X": x, "Y": y}, out, {}, name)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"Return {op_type} of two bools an element, in `out` if that is given."
    return layer


less_than = _comparison("less_than")
less_equal = _comparison("less_equal")
greater_than = _comparison("greater_than")
greater_equal = _comparison("greater_equal")
equal = _comparison("equal")
not_equal = _comparison("not_equal")
logical_and = _logic("logical_and")
logical_or = _logic("logical_or")
logical_xor = _logic("logical_xor")


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Return the opposite of each bool, in `out` if that is given."""
    return _into("logical_not", {"X": x}, out, {}, name)


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Return x + value, in x itself unless in_place is False."""
    helper = LayerHelper("increment")
    out = x if in_place else helper.create_variable_for_type_inference(x.dtype)
    helper.append_op("increment", {"X": x}, {"Out": out}, {"step": float(value)})
    return out


def _into(
    op_type: str,
    inputs: dict[str, Variable],
    out: Variable | None,
    attrs: dict[str, object],
    name: str | None = None,
) -> Variable:
    helper = LayerHelper(op_type, name)
    if out is None:
        out = helper.create_variable_for_type_inference("bool")
    out.stop_gradient = True
    helper.append_op(op_type, inputs, {"Out": out}, attrs)
    return out
