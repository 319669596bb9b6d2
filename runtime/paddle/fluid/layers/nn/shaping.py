# SPDX-License-Identifier: Apache-2.0
"""The same elements in another shape, order or selection.

Where a size, an offset or a count may be a variable, the operator reads it in every run; of the shape of its result -1
is known before.
"""

from __future__ import annotations

from collections.abc import Sequence

from paddle.fluid.errors import FluidTypeError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.tensor import fill_constant
from paddle.fluid.program.variable import Variable

__all__ = [
    "crop",
    "expand",
    "flatten",
    "gather",
    "pad",
    "reshape",
    "scatter",
    "shape",
    "slice",
    "split",
    "squeeze",
    "stack",
    "topk",
    "transpose",
    "unsqueeze",
]


Inputs = dict[str, Variable | Sequence[Variable] | None]


def _with_shape(
    helper: LayerHelper, op_type: str, x: Variable, attrs: dict[str, object], more: Inputs | None = None
) -> Variable:
    out, shape = (helper.create_variable_for_type_inference(x.dtype) for _ in range(2))
    shape.stop_gradient = True
    helper.append_op(op_type, {"X": x, **(more or {})}, {"Out": out, "XShape": shape}, attrs)
    return out


def _sizes(
    given: Sequence[int | Variable] | Variable, what: str
) -> tuple[tuple[int, ...], Variable | None, list[Variable] | None]:
    """Return the numbers, -1 where a variable stands for one; the variable that holds all, or each as a variable.

    Raises:
        FluidTypeError: it is neither a variable nor a list of numbers and variables.
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
    """Return x in another shape: 0 copies a size of x, one -1 is what is left. `inplace` has no meaning.

    Args:
        x: what is reshaped.
        shape: sizes, any of them as a variable (1,) of whole numbers, or all in one variable. Layers behind this one
            go by the numbers, 0 and -1 replaced as far as they are known.
        actual_shape: a variable of whole numbers, which goes before a `shape` of numbers when the program runs.
        act: activation.
        inplace: has no meaning.
        name: of the layer.
    """
    numbers, whole, parts = _sizes(shape, "reshape: shape")
    helper = LayerHelper("reshape2", name, act=act)
    more: Inputs = {"Shape": actual_shape if whole is None else whole, "ShapeTensor": parts}
    return helper.append_activation(_with_shape(helper, "reshape2", x, {"shape": numbers}, more))


def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Return x with its dimensions in another order."""
    return _with_shape(LayerHelper("transpose", name), "transpose2", x, {"axis": tuple(perm)})


def squeeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Variable:
    """Return input without the given dimensions of size 1."""
    return _with_shape(LayerHelper("squeeze", name), "squeeze2", input, {"axes": tuple(axes)})


def unsqueeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Variable:
    """Return input with dimensions of size 1 put in."""
    return _with_shape(LayerHelper("unsqueeze", name), "unsqueeze2", input, {"axes": tuple(axes)})


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """Return x as a matrix whose rows are its first `axis` dimensions."""
    return _with_shape(LayerHelper("flatten", name), "flatten2", x, {"axis": axis})


def split(
    input: Variable, num_or_sections: int | Sequence[int], dim: int = -1, name: str | None = None
) -> list[Variable]:
    """Return equal parts, or parts of the given sizes, along a dimension."""
    helper = LayerHelper("split", name)
    equal = isinstance(num_or_sections, int)
    count = num_or_sections if isinstance(num_or_sections, int) else len(num_or_sections)
    parts = [helper.create_variable_for_type_inference(input.dtype) for _ in range(count)]
    attrs = {
        "num": count if equal else 0,
        "sections": () if isinstance(num_or_sections, int) else tuple(num_or_sections),
        "axis": dim,
    }
    helper.append_op("split", {"X": input}, {"Out": parts}, attrs)
    return parts


def stack(x: Variable | Sequence[Variable], axis: int = 0) -> Variable:
    """Return variables of one shape along a new axis."""
    inputs = [x] if isinstance(x, Variable) else list(x)
    return LayerHelper("stack").apply("stack", {"X": inputs}, {"axis": axis}, "Y", inputs[0].dtype)


def expand(
    x: Variable, expand_times: Sequence[int | Variable] | Variable, name: str | None = None
) -> Variable:
    """Return x repeated along each dimension; how often may be a variable (1,) for each, or one for all."""
    numbers, whole, parts = _sizes(expand_times, "expand: expand_times")
    inputs: Inputs = {"X": x, "ExpandTimes": whole, "expand_times_tensor": parts}
    return LayerHelper("expand", name).apply("expand", inputs, {"expand_times": numbers}, dtype=x.dtype)


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """Return rows of input. `overwrite` has no meaning: gradients of a row that was taken twice are added up."""
    return LayerHelper("gather").apply("gather", {"X": input, "Index": index}, dtype=input.dtype)


def scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True
) -> Variable:
    """Return input with some rows replaced, or added to with overwrite=False."""
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return LayerHelper("scatter", name).apply("scatter", inputs, {"overwrite": overwrite}, dtype=input.dtype)


def slice(
    input: Variable,
    axes: Sequence[int],
    starts: Sequence[int | Variable] | Variable,
    ends: Sequence[int | Variable] | Variable,
) -> Variable:
    """Return input from starts up to ends along some axes; each may be a variable (1,), or one variable holds all."""
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
    return LayerHelper("slice").apply("slice", inputs, attrs, dtype=input.dtype)


def pad(x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """Return x with so much before and after each dimension: [before0, after0, before1, ...]."""
    attrs = {"paddings": tuple(paddings), "pad_value": float(pad_value)}
    return LayerHelper("pad", name).apply("pad", {"X": x}, attrs, dtype=x.dtype)


def crop(
    x: Variable,
    shape: Sequence[int] | Variable | None = None,
    offsets: Sequence[int] | Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return a part of x that begins at the offsets, zeros if there are none, which a variable may hold.

    Args:
        x: what the part is of.
        shape: of the part, or a variable that has this shape.
        offsets: a number for each dimension.
        name: of the layer.

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
    return LayerHelper("crop", name).apply("crop", inputs, attrs, dtype=x.dtype)


def topk(input: Variable, k: int | Variable, name: str | None = None) -> tuple[Variable, Variable]:
    """Return the k greatest values of each row, descending, and their int64 places; k may be a variable (1,)."""
    helper = LayerHelper("top_k", name)
    values, places = (helper.create_variable_for_type_inference(input.dtype) for _ in range(2))
    values.stop_gradient = places.stop_gradient = True
    inputs, attrs = ({"X": input, "K": k}, {}) if isinstance(k, Variable) else ({"X": input}, {"k": k})
    helper.append_op("top_k", inputs, {"Out": values, "Indices": places}, attrs)
    return values, places


def shape(input: Variable) -> Variable:
    """Return the sizes of a variable, int32."""
    return LayerHelper("shape").apply("shape", {"Input": input}, dtype="int32", stop_gradient=True)
