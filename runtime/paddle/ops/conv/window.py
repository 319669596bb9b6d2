# SPDX-License-Identifier: Apache-2.0
"""Windows that slide over images (N, C, H, W): sizes, views and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError

Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Size of a kernel and how it moves; all pairs are (vertical, horizontal)."""

    kernel: Pair
    strides: Pair
    paddings: Pair
    dilations: Pair = (1, 1)

    def __post_init__(self) -> None:
        pairs = (self.kernel, self.strides, self.paddings, self.dilations)
        if any(len(pair) != 2 for pair in pairs) or min(self.kernel + self.strides + self.dilations) < 1:
            raise AttrError(f"a window needs positive (vertical, horizontal) pairs, got {self}")
        if min(self.paddings) < 0:
            raise AttrError(f"paddings must not be negative, got {self.paddings}")

    @property
    def extent(self) -> Pair:
        """How many rows and columns a dilated kernel reaches over."""
        return (
            self.dilations[0] * (self.kernel[0] - 1) + 1,
            self.dilations[1] * (self.kernel[1] - 1) + 1,
        )

    def places(self, size: tuple[int, ...], ceil_mode: bool = False) -> Pair:
        """Return how many windows fit below and beside each other; -1 where the image's size is unknown.

        Args:
            size: (height, width) of the image.
            ceil_mode: count a last window that reaches over the edge.

        Raises:
            ShapeError: not one fits.
        """
        down, across = (
            self._along(axis, each, ceil_mode) if each >= 0 else -1 for axis, each in enumerate(size)
        )
        return down, across

    def offsets(self) -> Iterator[tuple[Pair, Pair]]:
        """Yield (place in the kernel, distance from the window's corner) for each cell of the kernel."""
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                yield (i, j), (i * self.dilations[0], j * self.dilations[1])

    def _along(self, axis: int, size: int, ceil_mode: bool) -> int:
        room = size + 2 * self.paddings[axis] - self.extent[axis]
        if room < 0:
            raise ShapeError(f"an image of {size} with paddings {self.paddings[axis]} has no room for {self}")
        return (room + (self.strides[axis] - 1 if ceil_mode else 0)) // self.strides[axis] + 1


def padded(x: Array, window: Window, places: Pair, value: float = 0.0) -> Array:
    """Return the images with the window's padding around them, and as much after them as its last place needs."""
    _, _, height, width = x.shape
    top, left = window.paddings
    full_height = max((places[0] - 1) * window.strides[0] + window.extent[0], top + height)
    full_width = max((places[1] - 1) * window.strides[1] + window.extent[1], left + width)
    if (full_height, full_width) == (height, width):
        return x
    full = array_module(x).full((*x.shape[:2], full_height, full_width), value, x.dtype)
    full[:, :, top : top + height, left : left + width] = x
    return full


def views(full: Array, window: Window, places: Pair) -> Array:
    """Return a read-only view (N, C, kernel height, kernel width, places down, places across) of padded images."""
    images, channels, down, across = full.strides
    return array_module(full).lib.stride_tricks.as_strided(
        full,
        shape=(*full.shape[:2], *window.kernel, *places),
        strides=(
            images,
            channels,
            down * window.dilations[0],
            across * window.dilations[1],
            down * window.strides[0],
            across * window.strides[1],
        ),
    )


def shifted(full: Array, window: Window, places: Pair, distance: Pair) -> Array:
    """Return a view (N, C, places down, places across) of the cell at a distance from each window's corner."""
    (down, across), (step_down, step_across) = distance, window.strides
    return full[
        :,
        :,
        down : down + (places[0] - 1) * step_down + 1 : step_down,
        across : across + (places[1] - 1) * step_across + 1 : step_across,
    ]


def unpadded(full: Array, window: Window, height: int, width: int) -> Array:
    """Return the images without their padding, contiguous."""
    top, left = window.paddings
    inner = full[:, :, top : top + height, left : left + width]
    return inner if inner.shape == full.shape else array_module(full).ascontiguousarray(inner)
