# SPDX-License-Identifier: Apache-2.0
"""Sequences taken apart by time steps, longest first, or by a mask, and put together again."""

from __future__ import annotations

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable

__all__ = [
    "array_to_lod_tensor",
    "lod_rank_table",
    "lod_tensor_to_array",
    "max_sequence_len",
    "merge_lod_tensor",
    "reorder_lod_tensor_by_rank",
    "shrink_memory",
    "split_lod_tensor",
]


def lod_rank_table(x: Variable, level: int = 0) -> Variable:
    """Return the sequences of a level of x, longest first."""
    out = LayerHelper("lod_rank_table").apply("lod_rank_table", {"X": x}, {"level": level}, dtype="int64")
    out.stop_gradient = True
    return out


def max_sequence_len(rank_table: Variable) -> Variable:
    """Return the length of the longest sequence of a rank table."""
    out = LayerHelper("max_sequence_len").apply("max_sequence_len", {"RankTable": rank_table}, dtype="int64")
    out.stop_gradient = True
    return out


def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """Return an array with the rows of each time step, those of the longest sequence first."""
    helper = LayerHelper("lod_tensor_to_array")
    return helper.apply("lod_tensor_to_array", {"X": x, "RankTable": table}, dtype=x.dtype)


def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """Return the sequences whose time steps an array has."""
    helper = LayerHelper("array_to_lod_tensor")
    return helper.apply("array_to_lod_tensor", {"X": x, "RankTable": table}, dtype=x.dtype)


def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """Return the rows of those sequences that go on at step i."""
    inputs = {"X": x, "I": i, "RankTable": table}
    return LayerHelper("shrink_memory").apply("shrink_rnn_memory", inputs, dtype=x.dtype)


def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """Return the sequences of x, or its rows, in the order of the table."""
    inputs = {"X": x, "RankTable": rank_table}
    helper = LayerHelper("reorder_lod_tensor_by_rank")
    return helper.apply("reorder_lod_tensor_by_rank", inputs, dtype=x.dtype)


def split_lod_tensor(input: Variable, mask: Variable, level: int = 0) -> tuple[Variable, Variable]:
    """Return the rows where a (rows, 1) mask holds, and the others."""
    outs = {"OutTrue": input.dtype, "OutFalse": input.dtype}
    helper = LayerHelper("split_lod_tensor")
    yes, no = helper.apply_all("split_lod_tensor", {"X": input, "Mask": mask}, outs, {"level": level})
    return yes, no


def merge_lod_tensor(
    in_true: Variable, in_false: Variable, x: Variable, mask: Variable, level: int = 0
) -> Variable:
    """Return the rows of both in the order of the mask."""
    inputs = {"X": x, "Mask": mask, "InTrue": in_true, "InFalse": in_false}
    helper = LayerHelper("merge_lod_tensor")
    return helper.apply("merge_lod_tensor", inputs, {"level": level}, dtype=in_true.dtype)
