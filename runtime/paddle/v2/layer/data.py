# SPDX-License-Identifier: Apache-2.0
"""The data layer, which declares an input of the network."""

from __future__ import annotations

from paddle.graph import Variable
from paddle.v2.data_type import DataType, InputType
from paddle.v2.errors import UsageError, UsageTypeError
from paddle.v2.layer.emitter import Emitter, emits, frame_of
from paddle.v2.layer.output import LayerAttr, LayerOutput, declare, extras_of
from paddle.v2.model import LayerConfig

__all__ = ["data"]


def data(
    name: str,
    type: InputType,
    depth: int | None = None,
    height: int | None = None,
    width: int | None = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare a data layer, an input of the network.

    Args:
        name: the name of the layer, which is also its key in ``feeding``.
        type: the input type of the samples' column.
        depth: the depth of a volume; 1 otherwise.
        height: the height of an image.
        width: the width of an image.
        layer_attr: dropout of dense values; device has no effect.
    """
    if not isinstance(type, InputType):
        raise UsageTypeError(
            f"data layer {name!r}: type must be the result of a call, such as paddle.data_type.dense_vector(10), got "
            f"{type!r}"
        )
    if type.dim < 1:
        raise UsageError(f"data layer {name!r}: the dimension must be at least 1, got {type.dim}")
    return declare_input(name, type.dim, type, (depth or 1, height or 0, width or 0), layer_attr)


def declare_input(
    name: str, size: int, type: InputType | None, volume: tuple[int, int, int], layer_attr: LayerAttr
) -> LayerOutput:
    """Declare a data layer for a v2 script or a configuration file.

    Args:
        type: the input type; None if a data provider will give it.
        volume: depth, height and width of an image; height and width are 0 for other inputs.
    """
    depth, height, width = volume
    cells = height * width * depth
    if cells and size % cells:
        raise UsageError(
            f"data layer {name!r}: expected a size that is a multiple of {height}x{width} pixels, got {size}"
        )
    image = (size // cells if cells else 0, height, width)
    attrs = {"depth": depth} if cells and depth > 1 else {}
    return declare(
        LayerConfig(name, "data", size, (), "", "", extras_of(layer_attr), *image, type, attrs), []
    )


@emits("data")
def _data(emitter: Emitter, config: LayerConfig) -> Variable | None:
    if config.input_type is None:
        raise UsageError(
            f"data layer {config.name!r} has no type, as data_layer of trainer_config_helpers is for configuration "
            "files: declare it as paddle.layer.data(name, paddle.data_type.dense_vector(size))"
        )
    kind, levels = config.input_type.type, int(config.input_type.seq_type)
    if kind == DataType.Dense:
        if config.input_type.has_own_shape:
            emitter.input(frame_of(config.name), [4], "int64")
            emitter.frames[config.name] = (1, 1, config.size)
        return emitter.input(config.name, [-1, config.size], "float32", levels)
    if kind == DataType.Index:
        emitter.ids[config.name] = emitter.input(config.name, [-1, 1], "int64", levels)
    else:
        columns = emitter.input(f"{config.name}.columns", [-1, 1], "int64")
        matrix = emitter.input(f"{config.name}.matrix", [-1, -1], "float32", levels)
        emitter.sparse[config.name] = (columns, matrix)
    return None
