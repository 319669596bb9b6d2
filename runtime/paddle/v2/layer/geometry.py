# SPDX-License-Identifier: Apache-2.0
"""What a layer looks like as an image, and sizes that are given per axis."""

from __future__ import annotations

import math
from typing import NamedTuple

from paddle.v2.data_type import whole_number
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput, require_layer


class Geometry(NamedTuple):
    """Channels, height and width of an image."""

    channels: int
    height: int
    width: int


def geometry(layer: LayerOutput, channels: int | None, who: str) -> Geometry:
    """What a layer looks like as an image; one that says neither height nor width must be square."""
    require_layer(layer, who)
    count = channels or layer.num_filters
    if not count:
        raise UsageError(f"{who}: give num_channels, input {layer.name!r} is no image")
    cells = layer.size // count
    side = math.isqrt(cells)
    if not (layer.height or layer.width) and count * side * side != layer.size:
        raise UsageError(
            f"{who}: input {layer.name!r} of size {layer.size} is no square image of {count} channels; give its data "
            "layer height and width"
        )
    height = layer.height or side
    width = layer.width or (cells // height if height else 0)
    if count * height * width != layer.size:
        raise UsageError(
            f"{who}: input {layer.name!r} of size {layer.size} is no image of {count} channels and "
            f"{height}x{width} pixels"
        )
    return Geometry(count, height, width)


def pair(x: int | tuple[int, int], y: int | None, what: str, *, least: int) -> tuple[int, int]:
    """A size along x and along y: two numbers in `x`, or `x` and `y`, or `x` for both.

    Raises:
        UsageError: one is no whole number or below `least`; the message begins with `what`.
    """
    sizes = x if isinstance(x, (tuple, list)) else (x, x if y is None else y)
    if len(sizes) != 2:
        raise UsageError(f"{what}: expected one number or an (x, y) pair, got {sizes!r}")
    found = whole_number(sizes[0], what), whole_number(sizes[1], what)
    if min(found) < least:
        raise UsageError(f"{what} must be at least {least}, got {found}")
    return found
