# SPDX-License-Identifier: Apache-2.0
"""Layers that change the shape, order or selection of elements.

A size, offset or count that is a variable is read in every run; the corresponding dimension of the result is then -1.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.layers.tensor import fill_constant
from paddle.fluid.program.variable import Variable
from paddle.ops.base.dtypes import VarType

__all__ = [
    "crop", "expand", "flatten", "gather", "get_tensor_from_selected_rows", "hash", "merge_selected_rows",
    "multiplex", "pad", "pad_constant_like", "rank", "reshape", "scatter", "shape", "slice", "split", "squeeze",
    "stack", "topk", "transpose", "unsqueeze", "unstack", "where",
]  # fmt: skip


Inputs = dict[str, Variable | Sequence[Variable] | None]


def _sizes(
    given: Sequence[int | Variable] | Variable, what: str
) -> tuple[tuple[int, ...], Variable | None, list[Variable] | None]:
    """Return the numbers, with -1 in place of variables, and the variable with all numbers or the list of variables.

    Raises:
        FluidTypeError: the argument is neither a variable nor a list of numbers and variables.
    """
    if isinstance(given, Variable):
        return (), given, None
    if isinstance(given, int | str) or not isinstance(given, Sequence):
        raise FluidTypeError(f"{what}: expected a list of numbers and variables, got {given!r}")
    numbers = tuple(-1 if isinstance(each, Variable) else each for each in given)
    if not any(isinstance(each, Variable) for each in given):
        return numbers, None, None
    parts = [
        each if isinstance(each, Variable) else fill_constant([1], "int32", each, force_cpu=True)
        for each in given
    ]
    return numbers, None, parts


def reshape(
    x: Variable,
    shape: Sequence[int | Variable] | Variable,
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """Reshape x: in the new shape, 0 copies a dimension of x, and a single -1 is inferred.

    Args:
        shape: dimensions, any of which can be an integer variable (1,), or one variable with all dimensions. The static
            shape has the numbers, with 0 and -1 replaced where possible.
        actual_shape: an integer variable that overrides the numbers in `shape` when the program runs.
        inplace: ignored.
    """
    numbers, whole, parts = _sizes(shape, "reshape: shape")
    helper = LayerHelper("reshape2", name, act=act)
    inputs: Inputs = {"X": x, "Shape": actual_shape if whole is None else whole, "ShapeTensor": parts}
    return helper.append_activation(helper.apply("reshape2", inputs, {"shape": numbers}))


transpose = layer(
    "transpose(x, perm, name=None)",
    "x with its dimensions reordered: dimension i is dimension perm[i] of x",
    "transpose2",
    to="perm=axis",
    prefix="transpose",
)
squeeze = layer(
    "squeeze(input, axes, name=None)",
    "input without the given dimensions of size 1",
    "squeeze2",
    prefix="squeeze",
)
unsqueeze = layer(
    "unsqueeze(input, axes, name=None)",
    "input with dimensions of size 1 inserted",
    "unsqueeze2",
    prefix="unsqueeze",
)
flatten = layer(
    "flatten(x, axis=1, name=None)",
    "x as a matrix whose rows are its first `axis` dimensions",
    "flatten2",
    prefix="flatten",
)
stack = layer("stack(x, axis=0)", "variables of equal shape, stacked along a new axis")
gather = layer(
    "gather(input, index, overwrite=True)",
    "the rows of input selected by index; gradients of a repeated row are summed",
    to="overwrite=",
)
scatter = layer(
    "scatter(input, index, updates, name=None, overwrite=True)",
    "input with the rows at the positions in index replaced with the updates; with overwrite=False, with the "
    "sum of their updates",
)
pad = layer(
    "pad(x, paddings, pad_value=0.0, name=None)",
    "x padded before and after each dimension: [before0, after0, before1, ...]",
)
pad_constant_like = layer(
    "pad_constant_like(x, y, pad_value=0.0, name=None)",
    "y padded to the shape of x, with pad_value after it along each dimension",
)
topk = several(
    "topk(input, k, name=None)",
    "the k greatest values of each row, descending, and their int64 positions; k may be a variable (1,)",
    "top_k",
    to="k=k|K",
    fixed="Out Indices",
)
shape = layer("shape(input)", "the sizes of a variable, (rank,) int32", fixed="Out")
where = layer(
    "where(condition)", "the positions (found, rank) at which a condition is true, int64", fixed="Out"
)
multiplex = layer(
    "multiplex(inputs, index)",
    "rows selected from several inputs: row i comes from input index[i]",
    to="inputs=X",
)
hash = layer(
    "hash(input, hash_size, num_hash=1, name=None)",
    "the hash values of each row of ids, (rows, num_hash, 1), below hash_size",
    to="hash_size=mod_by",
    fixed="Out",
)
get_tensor_from_selected_rows = layer(
    "get_tensor_from_selected_rows(x, name=None)", "the values of sparse rows as an array"
)


def split(
    input: Variable, num_or_sections: int | Sequence[int], dim: int = -1, name: str | None = None
) -> list[Variable]:
    """Split a variable along a dimension into equal parts, or into parts of given sizes; return a list of variables."""
    helper = LayerHelper("split", name)
    sections = () if isinstance(num_or_sections, int) else tuple(num_or_sections)
    num = num_or_sections if isinstance(num_or_sections, int) else 0
    parts = [helper.create_variable_for_type_inference(input.dtype) for _ in range(num or len(sections))]
    attrs = {"num": num, "sections": sections, "axis": dim}
    helper.append_op("split", {"X": input}, {"Out": parts}, attrs)
    return parts


def expand(
    x: Variable, expand_times: Sequence[int | Variable] | Variable, name: str | None = None
) -> Variable:
    """Repeat x along each dimension; counts are numbers, variables (1,), or one variable for all dimensions."""
    numbers, whole, parts = _sizes(expand_times, "expand: expand_times")
    inputs: Inputs = {"X": x, "ExpandTimes": whole, "expand_times_tensor": parts}
    return LayerHelper("expand", name).apply("expand", inputs, {"expand_times": numbers})


def slice(
    input: Variable,
    axes: Sequence[int],
    starts: Sequence[int | Variable] | Variable,
    ends: Sequence[int | Variable] | Variable,
) -> Variable:
    """Return the part of `input` from `starts` to `ends` (exclusive) on the given axes; bounds can be variables."""
    first, first_whole, first_parts = _sizes(starts, "slice: starts")
    last, last_whole, last_parts = _sizes(ends, "slice: ends")
    attrs: dict[str, object] = {"axes": tuple(axes), "starts": first, "ends": last}
    if not isinstance(starts, Variable) and not isinstance(ends, Variable) and (first_parts or last_parts):
        attrs["infer_flags"] = tuple(
            -1 if isinstance(start, Variable) or isinstance(end, Variable) else 1
            for start, end in zip(starts, ends, strict=False)
        )
    inputs: Inputs = {
        "Input": input,
        "StartsTensor": first_whole,
        "EndsTensor": last_whole,
        "StartsTensorList": first_parts,
        "EndsTensorList": last_parts,
    }
    return LayerHelper("slice").apply("slice", inputs, attrs)


def crop(
    x: Variable,
    shape: Sequence[int] | Variable | None = None,
    offsets: Sequence[int] | Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Crop x: return the part with the given shape that begins at the given offsets.

    Args:
        shape: shape of the part, or a variable that has this shape.
        offsets: one number per dimension, or a variable; None means 0.

    Raises:
        FluidTypeError: shape is neither numbers nor a variable.
    """
    if shape is None or isinstance(shape, int):
        raise FluidTypeError(f"crop: shape: expected numbers, or a variable of the shape, got {shape!r}")
    attrs: dict[str, object] = {}
    inputs = {"X": x}
    if isinstance(shape, Variable):
        inputs["Y"] = shape
    else:
        attrs["shape"] = tuple(shape)
    if isinstance(offsets, Variable):
        inputs["Offsets"] = offsets
    else:
        attrs["offsets"] = tuple(offsets or [0] * len(x.shape))
    return LayerHelper("crop", name).apply("crop", inputs, attrs)


def rank(input: Variable) -> Variable:
    """Return the rank (number of dimensions) of a variable as an int32 constant (1,)."""
    return fill_constant([1], "int32", len(input.shape))


def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """Split x into slices along an axis, which they no longer have.

    Args:
        num: number of slices; None means the size of the axis.

    Raises:
        FluidError: num is None and the size is unknown.
    """
    count = x.shape[axis] if num is None else num
    if count < 0:
        raise FluidError(f"unstack: the size of axis {axis} of {x.describe()} is unknown; give num")
    helper = LayerHelper("unstack")
    parts = [helper.create_variable_for_type_inference(x.dtype) for _ in range(count)]
    helper.append_op("unstack", {"X": x}, {"Y": parts}, {"axis": axis, "num": count})
    return parts


def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Merge duplicate rows of selected rows by adding their values."""
    helper = LayerHelper("merge_selected_rows", name)
    out = helper.block.create_var(f"{helper.name}.out", x.shape, x.dtype, type=VarType.SELECTED_ROWS)
    helper.append_op("merge_selected_rows", {"X": x}, {"Out": out})
    return out
