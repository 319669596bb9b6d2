# SPDX-License-Identifier: Apache-2.0
"""Corrections of layers that do not fit their inputs, for messages while a program is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paddle import graph
from paddle.fluid.program.variable import Variable

_COLORS = (1, 3)
_SMALLEST = 8
_IMAGES = {
    **dict.fromkeys(("conv2d", "conv2d_transpose", "depthwise_conv2d"), "Input"),
    "pool2d": "X",
}
_LABELS = ("Label", "Labels", "Target")


def swapped(op: graph.Operator, variable_of: Callable[[str], graph.Variable], has_failed: bool) -> str:
    """Return that the prediction and the label of a cost or a metric are exchanged, or "".

    Integer inputs with computed labels of floating-point numbers are always exchanged. An operator that has failed
    has exchanged inputs if the input is a data layer and the label is computed.
    """
    label = next((op.inputs[slot][0] for slot in _LABELS if op.inputs.get(slot)), "")
    given = next((names[0] for names in op.inputs.values() if names), "")
    if not label or label == given:
        return ""
    one, other = variable_of(given), variable_of(label)
    if getattr(other, "is_data", True) or getattr(other, "op", None) is None or other.dtype.kind != "f":
        return ""
    if one.dtype.kind in "iu" or (has_failed and getattr(one, "is_data", False)):
        return (
            f"input is the prediction, and label the data layer: exchange input and label, which is {label!r}"
        )
    return ""


def of_shapes(op: graph.Operator, inputs: Sequence[Variable]) -> str:
    """Return the correction of the shapes with which inputs were declared, or ""."""
    image = next((each for each in inputs if each.name in op.inputs.get(_IMAGES.get(op.type, ""), ())), None)
    if image is not None and (text := channels_last(op.type, image)):
        return text
    least = min((len(each.shape) for each in inputs), default=0)
    for each in inputs:
        if each.is_data and each.shape[0] == -1 and len(each.shape) > max(least, 2):
            return (
                f"layers.data adds the size of the batch to the shape of {each.name!r}: declare the shape of one "
                f"sample, such as {list(each.shape[2:])}, or pass append_batch_size=False"
            )
    return ""


def channels_last(reader: str, image: graph.Variable) -> str:
    """Return the correction of an image that is declared with its channels last, or ""; `reader` is the operator."""
    shape = tuple(image.shape)
    is_last = len(shape) == 4 and shape[1] == shape[2] >= _SMALLEST and shape[3] in _COLORS
    if not is_last or not getattr(image, "is_data", False):
        return ""
    return (
        f"{reader} reads {image.name!r} {shape} as (batch, channels, height, width): declare it as "
        f"{[shape[3], *shape[1:3]]}, and feed images.transpose(0, 3, 1, 2)"
    )
