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

from paddle.fluid.program.var_type import VarType
from paddle.graph import unique_name

if TYPE_CHECKING:
    from paddle.fluid.program.block import Block
    from paddle.fluid.program.variable import Variable


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
