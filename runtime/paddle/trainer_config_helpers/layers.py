# SPDX-License-Identifier: Apache-2.0
"""Layers: ``fc_layer`` is ``paddle.v2.layer.fc``, and so on; a data layer does not set the type of its data."""

from __future__ import annotations

from paddle.trainer_config_helpers.v1_names import layer_name, missing
from paddle.v2 import layer
from paddle.v2.errors import UsageError
from paddle.v2.layer.data import declare_input
from paddle.v2.layer.missing import RENAMED
from paddle.v2.layer.output import LayerAttr, LayerOutput

V2_NAMES = {layer_name(name): name for name in (*layer.__all__, *RENAMED) if name != "data"}
"""The v1 name of a layer -> its v2 name."""

__all__ = ["data_layer"]
__all__ += V2_NAMES

for _old, _new in V2_NAMES.items():
    globals()[_old] = getattr(layer, _new)


def data_layer(
    name: str,
    size: int,
    depth: int | None = None,
    height: int | None = None,
    width: int | None = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare an input of the network; the data provider sets its type.

    Args:
        name: the key in a provider's samples.
        size: width of a row, or the number of classes or words.
        depth: depth of a volume, 1 otherwise.
        height: height of an image.
        width: width of an image.
        layer_attr: device, which has no effect, or dropout of float data.
    """
    if not size or size < 1:
        raise UsageError(f"data layer {name!r}: the size must be at least 1, got {size!r}")
    return declare_input(name, size, None, (depth or 1, height or 0, width or 0), layer_attr)


def __getattr__(name: str) -> object:
    now = name.removesuffix("_layer")
    if now != name and not name.startswith("_"):
        return getattr(layer, now)
    raise missing(__name__, name, __all__)
