# SPDX-License-Identifier: Apache-2.0
"""Layers for control flow: comparisons, arrays of values, sequences by time steps, Print; see `blocks` and `rnn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from paddle.fluid.errors import FluidError, answering
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.blocks import ConditionalBlock, IfElse, Switch, While
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.layers.rnn import DynamicRNN, StaticRNN
from paddle.fluid.program.variable import Variable, VarType
from paddle.signatures import takes

__all__ = [
    "ConditionalBlock", "DynamicRNN", "IfElse", "Print", "StaticRNN", "Switch", "While", "array_length", "array_read",
    "array_to_lod_tensor", "array_write", "create_array", "equal", "greater_equal", "greater_than", "increment",
    "is_empty", "less_equal", "less_than", "lod_rank_table", "lod_tensor_to_array", "max_sequence_len",
    "merge_lod_tensor", "not_equal", "reorder_lod_tensor_by_rank", "shrink_memory", "split_lod_tensor",
]  # fmt: skip


def _comparison(
    op_type: str, symbol: str, last: str = "cond=None, force_cpu=None"
) -> Callable[..., Variable]:
    what = f"whether x {symbol} y for each element, bool; in `cond` if that is given"
    return layer(f"{op_type}(x, y, {last})", what, to="cond=Out", fixed="Out")


less_than = _comparison("less_than", "<", "force_cpu=None, cond=None")
less_equal = _comparison("less_equal", "<=")
greater_than = _comparison("greater_than", ">")
greater_equal = _comparison("greater_equal", ">=")
equal = _comparison("equal", "==")
not_equal = _comparison("not_equal", "!=")
is_empty = layer(
    "is_empty(x, cond=None)",
    "whether x has no elements; in `cond` if that is given",
    to="cond=Out",
    fixed="Out",
)


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """Return x + value, in x itself unless in_place is False."""
    helper = LayerHelper("increment")
    (out,) = helper.apply_all("increment", {"X": x}, {"step": float(value)}, {"Out": x} if in_place else {})
    return out


def create_array(dtype: npt.DTypeLike) -> Variable:
    """Return an array without values."""
    helper = LayerHelper("array")
    array = helper.block.create_var(f"{helper.name}.out", dtype=dtype, type=VarType.LOD_TENSOR_ARRAY)
    helper.append_op("create_array", {}, {"Out": array}, {"dtype": VarType.of(dtype)})
    return array


def array_write(x: Variable, i: Variable, array: Variable | None = None) -> Variable:
    """Write x at index i of an array, or of a new one, and return the array."""
    if array is None:
        array = create_array(x.dtype)
    LayerHelper("array_write").apply_all(
        "write_to_array", {"X": x, "I": i, "Array": array}, None, {"Out": array}
    )
    return array


array_read = layer("array_read(array, i)", "element i of an array", "read_from_array", prefix="array_read")
array_length = layer(
    "array_length(array)",
    "the length of an array, (1,) int64",
    "lod_array_length",
    prefix="array_length",
)
lod_rank_table = layer(
    "lod_rank_table(x, level=0)", "the sequences of a level of x, longest first", fixed="Out"
)
max_sequence_len = layer(
    "max_sequence_len(rank_table)",
    "the length of the longest sequence of a rank table, (1,) int64",
    fixed="Out",
)
lod_tensor_to_array = layer(
    "lod_tensor_to_array(x, table)",
    "an array with the rows of each time step, longest sequence first",
)
array_to_lod_tensor = layer("array_to_lod_tensor(x, table)", "the sequences whose time steps are in an array")
shrink_memory = layer(
    "shrink_memory(x, i, table)",
    "the rows of the sequences that continue at step i",
    "shrink_rnn_memory",
    prefix="shrink_memory",
)
reorder_lod_tensor_by_rank = layer(
    "reorder_lod_tensor_by_rank(x, rank_table)", "the sequences of x, or its rows, in the order of the table"
)
split_lod_tensor = several(
    "split_lod_tensor(input, mask, level=0)", "the rows where a (rows, 1) mask is true, and the other rows"
)
merge_lod_tensor = layer(
    "merge_lod_tensor(in_true, in_false, x, mask, level=0)",
    "the rows of both, in the order of the mask",
    to="in_true=InTrue in_false=InFalse",
)


@takes(
    "input, first_n=-1, message=None, summarize=-1, print_tensor_name=True, print_tensor_type=True, "
    "print_tensor_shape=True, print_tensor_lod=True, print_phase='both'"
)
def Print(given: dict[str, Any]) -> Variable:  # noqa: N802 (the name that scripts use)
    """Return the input; every run prints its first `summarize` values (-1: all) to standard error.

    Args:
        first_n: number of runs that print; -1: all.
        message: text before the values.
        summarize: number of values.
        print_tensor_name: print the name.
        print_tensor_type: print the dtype.
        print_tensor_shape: print the shape.
        print_tensor_lod: print the LoD.
        print_phase: "forward", "backward" or "both": print the value, its gradient, or both.

    Raises:
        FluidError: unknown print_phase.
    """
    print_phase, inputs = given.pop("print_phase"), {"In": given.pop("input")}
    if str(print_phase).upper() not in ("FORWARD", "BACKWARD", "BOTH"):
        raise FluidError(f"Print: expected print_phase 'forward', 'backward' or 'both', got {print_phase!r}")
    return LayerHelper("print").apply("print", inputs, {**given, "print_phase": print_phase.upper()})


__getattr__ = answering(__name__, "paddle.fluid.layers")
