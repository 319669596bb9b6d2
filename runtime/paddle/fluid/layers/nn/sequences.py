# SPDX-License-Identifier: Apache-2.0
"""Layers on sequences: variables whose rows have LoD."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.param_attr import ParamAttr, ParamAttrLike
from paddle.fluid.program.variable import Variable
from paddle.ops.base.dtypes import VarType

__all__ = [
    "lod_reset",
    "row_conv",
    "sequence_concat",
    "sequence_conv",
    "sequence_enumerate",
    "sequence_erase",
    "sequence_expand",
    "sequence_expand_as",
    "sequence_first_step",
    "sequence_last_step",
    "sequence_mask",
    "sequence_pad",
    "sequence_pool",
    "sequence_reshape",
    "sequence_reverse",
    "sequence_scatter",
    "sequence_slice",
    "sequence_softmax",
    "sequence_unpad",
]


def sequence_pool(input: Variable, pool_type: str, is_test: bool = False, pad_value: float = 0.0) -> Variable:
    """Return one row a sequence: its average, sum, sqrt (sum over the root of the length), max, first or last."""
    helper = LayerHelper("sequence_pool")
    attrs = {"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value}
    return helper.apply("sequence_pool", {"X": input}, attrs, dtype=input.dtype)


def sequence_first_step(input: Variable) -> Variable:
    """Return the first row of each sequence."""
    return sequence_pool(input, "first")


def sequence_last_step(input: Variable) -> Variable:
    """Return the last row of each sequence."""
    return sequence_pool(input, "last")


def sequence_softmax(input: Variable, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Return the softmax over each sequence of one number a row."""
    return LayerHelper("sequence_softmax", name).apply("sequence_softmax", {"X": input}, dtype=input.dtype)


def sequence_expand(x: Variable, y: Variable, ref_level: int = -1, name: str | None = None) -> Variable:
    """Repeat each sequence of x (each row, if it has no LoD) as often as the level of y's LoD says."""
    helper = LayerHelper("sequence_expand", name)
    return helper.apply("sequence_expand", {"X": x, "Y": y}, {"ref_level": ref_level}, dtype=x.dtype)


def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Repeat each row of x as often as the sequence of y has rows."""
    return LayerHelper("sequence_expand_as", name).apply(
        "sequence_expand_as", {"X": x, "Y": y}, dtype=x.dtype
    )


def sequence_concat(input: Sequence[Variable], name: str | None = None) -> Variable:
    """Join the sequences of several inputs pairwise."""
    helper = LayerHelper("sequence_concat", name)
    return helper.apply("sequence_concat", {"X": list(input)}, dtype=input[0].dtype)


def sequence_conv(
    input: Variable,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: bool | None = None,
    bias_attr: ParamAttrLike = None,
    param_attr: ParamAttrLike = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return act(rows beside their neighbours x W + b); the context begins filter_size // 2 rows before a row.

    What lies outside of a sequence is zero; `padding` has no meaning.
    """
    helper = LayerHelper("sequence_conv", name, bias_attr=bias_attr, act=act)
    shape = (filter_size * input.shape[1], num_filters)
    weight = helper.create_parameter(param_attr, shape, input.dtype)
    attrs = {
        "contextStride": filter_stride,
        "contextStart": -(filter_size // 2),
        "contextLength": filter_size,
    }
    out = helper.apply("sequence_conv", {"X": input, "Filter": weight}, attrs, dtype=input.dtype)
    return helper.append_activation(helper.append_bias_op(out))


def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """Return rows of new_dim numbers; sequences keep their numbers."""
    helper = LayerHelper("sequence_reshape")
    return helper.apply("sequence_reshape", {"X": input}, {"new_dim": new_dim}, dtype=input.dtype)


def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return (sequences, length, ...) with pad_value behind each sequence, and the lengths (sequences, 1)."""
    helper = LayerHelper("sequence_pad", name)
    out = helper.create_variable_for_type_inference(x.dtype)
    length = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    attrs = {"padded_length": -1 if maxlen is None else maxlen}
    helper.append_op("sequence_pad", {"X": x, "PadValue": pad_value}, {"Out": out, "Length": length}, attrs)
    return out, length


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """Return the sequences that `sequence_pad` padded."""
    helper = LayerHelper("sequence_unpad", name)
    return helper.apply("sequence_unpad", {"X": x, "Length": length}, dtype=x.dtype)


def sequence_mask(
    x: Variable, maxlen: int | Variable | None = None, dtype: npt.DTypeLike = "int64", name: str | None = None
) -> Variable:
    """Return ones where a place is below x, zeros elsewhere, for maxlen places (None: the greatest x).

    maxlen may be a variable (1,).
    """
    helper, inputs = LayerHelper("sequence_mask", name), {"X": x}
    if isinstance(maxlen, Variable):
        inputs["MaxLenTensor"], maxlen = maxlen, None
    attrs = {"maxlen": -1 if maxlen is None else maxlen, "out_dtype": VarType.of(dtype)}
    return helper.apply("sequence_mask", inputs, attrs, out="Y", dtype=dtype)


def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """Turn each sequence round."""
    return LayerHelper("sequence_reverse", name).apply("sequence_reverse", {"X": x}, out="Y", dtype=x.dtype)


def sequence_slice(input: Variable, offset: Variable, length: Variable, name: str | None = None) -> Variable:
    """Return of each sequence `length` rows from row `offset` on, both (sequences, 1)."""
    inputs = {"X": input, "Offset": offset, "Length": length}
    return LayerHelper("sequence_slice", name).apply("sequence_slice", inputs, dtype=input.dtype)


def sequence_enumerate(
    input: Variable, win_size: int, pad_value: int = 0, name: str | None = None
) -> Variable:
    """Return each id with those that follow it, win_size in all."""
    helper = LayerHelper("sequence_enumerate", name)
    attrs = {"win_size": win_size, "pad_value": pad_value}
    return helper.apply("sequence_enumerate", {"X": input}, attrs, dtype=input.dtype)


def sequence_erase(input: Variable, tokens: Sequence[int], name: str | None = None) -> Variable:
    """Leave out the ids that are among the tokens."""
    helper = LayerHelper("sequence_erase", name)
    return helper.apply("sequence_erase", {"X": input}, {"tokens": tuple(tokens)}, dtype=input.dtype)


def sequence_scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None
) -> Variable:
    """Add to row i of the input, at the columns that sequence i of index names, the updates of sequence i."""
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return LayerHelper("sequence_scatter", name).apply("sequence_scatter", inputs, dtype=input.dtype)


def lod_reset(x: Variable, y: Variable | None = None, target_lod: Sequence[int] | None = None) -> Variable:
    """Return x with the LoD of y, with y's numbers as offsets if it has none, or with offsets target_lod."""
    attrs = {"target_lod": tuple(target_lod)} if target_lod is not None else {}
    inputs = {"X": x} if y is None else {"X": x, "Y": y}
    return LayerHelper("lod_reset").apply("lod_reset", inputs, attrs, dtype=x.dtype)


def row_conv(
    input: Variable, future_context_size: int, param_attr: ParamAttrLike = None, act: str | None = None
) -> Variable:
    """Mix each row with the future_context_size rows that follow it in its sequence."""
    helper = LayerHelper("row_conv", act=act)
    shape = (future_context_size + 1, input.shape[1])
    weight = helper.create_parameter(param_attr or ParamAttr(), shape, input.dtype)
    out = helper.apply("row_conv", {"X": input, "Filter": weight}, dtype=input.dtype)
    return helper.append_activation(out)
