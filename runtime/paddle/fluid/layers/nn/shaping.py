# SPDX-License-Identifier: Apache-2.0
"""The same elements in another shape, order or selection."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
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


def _with_shape(helper: LayerHelper, op_type: str, x: Variable, attrs: dict[str, object]) -> Variable:
    out, shape = (helper.create_variable_for_type_inference(x.dtype) for _ in range(2))
    shape.stop_gradient = True
    helper.append_op(op_type, {"X": x}, {"Out": out, "XShape": shape}, attrs)
    return out


def reshape(
    x: Variable,
    shape: Sequence[int],
    actual_shape: Variable | None = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """Return x in another shape: 0 copies a size of x, one -1 is what is left. `inplace` has no meaning.

    Raises:
        FluidError: actual_shape was given, which is not supported.
    """
    if actual_shape is not None:
        raise FluidError("reshape: actual_shape is not supported: give sizes, one of them -1")
    helper = LayerHelper("reshape2", name, act=act)
    return helper.append_activation(_with_shape(helper, "reshape2", x, {"shape": tuple(shape)}))


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


def expand(x: Variable, expand_times: Sequence[int], name: str | None = None) -> Variable:
    """Return x repeated along each dimension."""
    attrs = {"expand_times": tuple(expand_times)}
    return LayerHelper("expand", name).apply("expand", {"X": x}, attrs, dtype=x.dtype)


def gather(input: Variable, index: Variable) -> Variable:
    """Return rows of input."""
    return LayerHelper("gather").apply("gather", {"X": input, "Index": index}, dtype=input.dtype)


def scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None, overwrite: bool = True
) -> Variable:
    """Return input with some rows replaced, or added to with overwrite=False."""
    inputs = {"X": input, "Ids": index, "Updates": updates}
    return LayerHelper("scatter", name).apply("scatter", inputs, {"overwrite": overwrite}, dtype=input.dtype)


def slice(input: Variable, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> Variable:
    """Return input from starts up to ends along some axes."""
    attrs = {"axes": tuple(axes), "starts": tuple(starts), "ends": tuple(ends)}
    return LayerHelper("slice").apply("slice", {"Input": input}, attrs, dtype=input.dtype)


def pad(x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None) -> Variable:
    """Return x with so much before and after each dimension: [before0, after0, before1, ...]."""
    attrs = {"paddings": tuple(paddings), "pad_value": float(pad_value)}
    return LayerHelper("pad", name).apply("pad", {"X": x}, attrs, dtype=x.dtype)


def crop(
    x: Variable,
    shape: Sequence[int] | Variable,
    offsets: Sequence[int] | None = None,
    name: str | None = None,
) -> Variable:
    """Return a part of x of the given shape, or of another variable's, that begins at the offsets."""
    attrs: dict[str, object] = {"offsets": tuple(offsets or [0] * len(x.shape))}
    inputs = {"X": x}
    if isinstance(shape, Variable):
        inputs["Y"] = shape
    else:
        attrs["shape"] = tuple(shape)
    return LayerHelper("crop", name).apply("crop", inputs, attrs, dtype=x.dtype)


def topk(input: Variable, k: int, name: str | None = None) -> tuple[Variable, Variable]:
    """Return the k greatest values of each row, descending, and their int64 places."""
    helper = LayerHelper("top_k", name)
    values, places = (helper.create_variable_for_type_inference(input.dtype) for _ in range(2))
    values.stop_gradient = places.stop_gradient = True
    helper.append_op("top_k", {"X": input}, {"Out": values, "Indices": places}, {"k": k})
    return values, places


def shape(input: Variable) -> Variable:
    """Return the sizes of a variable, int32."""
    return LayerHelper("shape").apply("shape", {"Input": input}, dtype="int32", stop_gradient=True)
