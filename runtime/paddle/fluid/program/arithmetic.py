# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on variables: `a + b` appends an operator and returns its output, `tmp_<n>`.

A number becomes a constant of shape [1], or of the variable's shape where it is on the left of a minus, a
division or a power. The result has the dtype of the variable on the left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidTypeError
from paddle.fluid.program.var_type import VarType
from paddle.graph import unique_name

if TYPE_CHECKING:
    from paddle.fluid.program.block import Block
    from paddle.fluid.program.variable import Variable

_END = 2**31 - 1  # of an axis, whatever its size


def binary(op_type: str, *, reverse: bool = False) -> Callable[..., Any]:
    """Return a method that applies an operator to a variable and another variable or a number."""

    def method(self: Variable, other: Any) -> Any:
        if isinstance(other, (int, float, np.number)) and not isinstance(other, bool):
            other = _like(self, float(other)) if reverse else _number(self, float(other))
        elif not hasattr(other, "block"):
            return NotImplemented
        if other.dtype != self.dtype:
            other = cast_to(other, self.dtype)
        left, right = (other, self) if reverse else (self, other)
        axis = 0 if right.shape and right.shape[0] == -1 else -1
        out = _temporary(self)
        _block(self).append_op(op_type, {"X": left, "Y": right}, {"Out": out}, {"axis": axis})
        return out

    return method


def cast_to(variable: Variable, dtype: npt.DTypeLike | VarType) -> Variable:
    """Append a cast and return its output."""
    out = _temporary(variable)
    attrs = {"in_dtype": VarType.of(variable.dtype), "out_dtype": VarType.of(dtype)}
    _block(variable).append_op("cast", {"X": variable}, {"Out": out}, attrs)
    return out


def sliced(variable: Variable, item: Any) -> Variable:
    """Append a slice and return its output; a whole number leaves its axis out.

    Raises:
        FluidTypeError: an index is something else, or a step is not 1.
        IndexError: an index is beyond the axis, or there are more indices than axes.
    """
    items = list(item) if isinstance(item, tuple) else [item]
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * (len(variable.shape) - len(items) + 1)
    if len(items) > len(variable.shape):
        raise IndexError(f"{variable.describe()} has fewer axes than {len(items)}")
    spans: list[tuple[int, int, int]] = []
    left_out = []
    for axis, each in enumerate(items):
        size = variable.shape[axis]
        if isinstance(each, slice):
            if each.step not in (None, 1):
                raise FluidTypeError(f"{variable.name}: a slice with step {each.step}, expected 1")
            if each != slice(None):
                start, end = each.start or 0, _END if each.stop is None else each.stop
                spans.append((axis, int(start), int(end)))
        elif isinstance(each, (int, np.integer)) and not isinstance(each, bool):
            place = int(each)
            if size >= 0 and not -size <= place < size:
                raise IndexError(f"{variable.describe()}: axis {axis} has no index {place}")
            spans.append((axis, place, _END if place == -1 else place + 1))
            left_out.append(axis)
        else:
            raise FluidTypeError(
                f"{variable.name}: an index must be a whole number or a slice, got {each!r}; "
                "layers.gather takes variables"
            )
    if not spans:
        return variable
    axes, starts, ends = zip(*spans, strict=True)
    out = _temporary(variable)
    attrs = {"axes": axes, "starts": starts, "ends": ends, "decrease_axis": tuple(left_out)}
    _block(variable).append_op("slice", {"Input": variable}, {"Out": out}, attrs)
    return out


def _number(beside: Variable, value: float, shape: tuple[int, ...] = (1,)) -> Variable:
    out = _temporary(beside)
    out.stop_gradient = True
    attrs = {"shape": shape, "dtype": VarType.of(beside.dtype), "value": value}
    _block(beside).append_op("fill_constant", {}, {"Out": out}, attrs)
    return out


def _like(variable: Variable, value: float) -> Variable:
    if -1 not in variable.shape:
        return _number(variable, value, variable.shape)
    zeros, out = _temporary(variable), _temporary(variable)
    zeros.stop_gradient = out.stop_gradient = True
    _block(variable).append_op("fill_zeros_like", {"X": variable}, {"Out": zeros})
    _block(variable).append_op("scale", {"X": zeros}, {"Out": out}, {"bias": value})
    return out


def _temporary(variable: Variable) -> Variable:
    return _block(variable).create_var(unique_name.generate("tmp"))


def _block(variable: Variable) -> Block:
    return cast("Block", variable.block.program.current_block())
