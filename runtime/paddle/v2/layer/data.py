# SPDX-License-Identifier: Apache-2.0
"""The data layer: where samples enter the network."""

from __future__ import annotations

from paddle.v2.attr import ExtraLayerAttribute
from paddle.v2.data_type import InputType, SequenceType
from paddle.v2.errors import NotAvailableError, UsageError, UsageTypeError
from paddle.v2.layer.output import LayerOutput, declare, extras_of
from paddle.v2.model import LayerConfig


def data(
    name: str,
    type: InputType,
    depth: int | None = None,
    height: int | None = None,
    width: int | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare an input of the network.

    Args:
        name: also the key in ``feeding``.
        type: what a sample's column holds.
        depth: of a volume, 1 otherwise.
        height: of an image.
        width: of an image.
        layer_attr: device, which has no effect, or dropout of numbers.
    """
    if not isinstance(type, InputType):
        raise UsageTypeError(f"data layer {name!r}: type takes paddle.data_type.*(...), got {type!r}")
    if type.dim < 1:
        raise UsageError(f"data layer {name!r}: the dimension must be at least 1, got {type.dim}")
    if type.seq_type == SequenceType.SUB_SEQUENCE:
        raise NotAvailableError(f"data layer {name!r}: {type}: sequences of sequences are not available yet")
    height, width = height or 0, width or 0
    filters = 0
    if height and width:
        cells = height * width * (depth or 1)
        if type.dim % cells:
            raise UsageError(
                f"data layer {name!r}: {type.dim} values are no whole number of {height}x{width} images"
            )
        filters = type.dim // cells
    config = LayerConfig(
        name,
        "data",
        type.dim,
        extras=extras_of(layer_attr),
        num_filters=filters,
        height=height,
        width=width,
        input_type=type,
    )
    return declare(config, [])
