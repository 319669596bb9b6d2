# SPDX-License-Identifier: Apache-2.0
"""Labels whose places are not known (CTC), and sequences taken apart by time steps or by a mask."""

from __future__ import annotations

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.shaping import topk
from paddle.fluid.program.variable import Variable

__all__ = [
    "array_to_lod_tensor",
    "ctc_greedy_decoder",
    "lod_tensor_to_array",
    "merge_lod_tensor",
    "reorder_lod_tensor_by_rank",
    "shrink_memory",
    "split_lod_tensor",
    "warpctc",
]


def warpctc(
    input: Variable, label: Variable, blank: int = 0, norm_by_times: bool = False, use_cudnn: bool = False
) -> Variable:
    """Return the cost (sequences, 1) of labels whose places are not known, by softmax over (rows, classes).

    With norm_by_times gradients are divided by the length of their sequence. `use_cudnn` has no meaning.
    """
    attrs = {"blank": blank, "norm_by_times": norm_by_times}
    inputs = {"Logits": input, "Label": label}
    return LayerHelper("warpctc").apply("warpctc", inputs, attrs, out="Loss", dtype=input.dtype)


def ctc_greedy_decoder(input: Variable, blank: int, name: str | None = None) -> Variable:
    """Return the likeliest class of each row, repeated ones once and blanks left out, as sequences."""
    helper = LayerHelper("ctc_greedy_decoder", name)
    _, classes = topk(input, k=1)
    attrs = {"merge_repeated": True, "blank": blank}
    return helper.apply("ctc_align", {"Input": classes}, attrs, "Output", "int64", stop_gradient=True)


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
