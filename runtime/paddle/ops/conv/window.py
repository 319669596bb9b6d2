# SPDX-License-Identifier: Apache-2.0
"""Window: sliding windows over images (N, C, H, W) or volumes (N, C, D, H, W), with their sizes and views."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import product

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle_node.contract.classes import dataclass

Sizes = tuple[int, ...]
"""A number for each side of an image (vertical, horizontal) or volume (depth, vertical, horizontal)."""

_EACH = (slice(None), slice(None))  # every image, every channel


@dataclass(frozen=True)
class Window:
    """A sliding window: kernel size, strides, paddings and dilations, with one number per axis each."""

    kernel: Sizes
    strides: Sizes
    paddings: Sizes
    dilations: Sizes

    def __post_init__(self) -> None:
        rank = len(self.kernel)
        others = (self.strides, self.paddings, self.dilations)
        if (
            not rank
            or any(len(each) != rank for each in others)
            or min(self.kernel + self.strides + self.dilations) < 1
        ):
            raise AttrError(f"expected a positive size, stride and dilation for each axis, got {self}")
        if min(self.paddings) < 0:
            raise AttrError(f"paddings must not be negative, got {self.paddings}")

    @cached_property
    def extent(self) -> Sizes:
        """The size of the dilated kernel along each axis."""
        return tuple(
            dilation * (size - 1) + 1 for dilation, size in zip(self.dilations, self.kernel, strict=True)
        )

    def places(self, size: Sizes, ceil_mode: bool = False) -> Sizes:
        """Return the number of windows along each axis; -1 where the size is unknown.

        Division truncates towards zero, as in Paddle: a window that exceeds the image by less than a stride (with
        ceil_mode, two strides minus one) has one position, which extends beyond the edge.

        Args:
            size: (height, width) of the image, or (depth, height, width).
            ceil_mode: whether to count a last window that extends beyond the edge.

        Raises:
            AttrError: the window has a different number of axes.
            ShapeError: no window fits into the image.
        """
        if len(size) != len(self.kernel):
            raise AttrError(
                f"expected a window with {len(size)} axes for an image of size {size}, got {self}"
            )
        return tuple(
            self._along(axis, each, ceil_mode) if each >= 0 else -1 for axis, each in enumerate(size)
        )

    def grown(self, places: Sizes) -> Sizes:
        """Return the smallest image that has the given number of windows; -1 where the number is unknown."""
        return tuple(
            (count - 1) * stride - 2 * pad + reach if count >= 0 else -1
            for count, stride, pad, reach in zip(
                places, self.strides, self.paddings, self.extent, strict=True
            )
        )

    def _along(self, axis: int, size: int, ceil_mode: bool) -> int:
        stride = self.strides[axis]
        room = size + 2 * self.paddings[axis] - self.extent[axis] + (stride - 1 if ceil_mode else 0)
        if room <= -stride:
            raise ShapeError(
                f"an image side of {size} with a padding of {self.paddings[axis]} is smaller than the extent "
                f"{self.extent[axis]} of the window"
            )
        return max(room, 0) // stride + 1


@lru_cache(maxsize=256)
def window_of(kernel: Sizes, strides: Sizes, paddings: Sizes, dilations: Sizes) -> Window:
    """Return the sliding window with these sizes. Results are cached because every step requests them again."""
    return Window(kernel, strides, paddings, dilations)


def padded_size(size: Sizes, window: Window, places: Sizes) -> Sizes:
    """Return the size of an image with its padding, and with enough padding at the end for its last window."""
    sides = zip(size, places, window.strides, window.paddings, window.extent, strict=True)
    return tuple(max((count - 1) * stride + reach, pad + each) for each, count, stride, pad, reach in sides)


def padded(x: Array, window: Window, places: Sizes, value: float = 0.0) -> Array:
    """Pad images with `value` to `padded_size`."""
    full_size = padded_size(x.shape[2:], window, places)
    if full_size == x.shape[2:]:
        return x
    full = array_module(x).full((*x.shape[:2], *full_size), value, x.dtype)
    full[_inner(window, x.shape[2:])] = x
    return full


def views(full: Array, window: Window, places: Sizes) -> Array:
    """Return a read-only view (N, C, *kernel, *places) of padded images.

    Element [n, c, i.., p..] is full[n, c, i · dilation + p · stride, ..]: cells overlap in memory.
    """
    images, channels, *steps = full.strides
    return array_module(full).lib.stride_tricks.as_strided(
        full,
        shape=(*full.shape[:2], *window.kernel, *places),
        strides=(
            images,
            channels,
            *(step * dilation for step, dilation in zip(steps, window.dilations, strict=True)),
            *(step * stride for step, stride in zip(steps, window.strides, strict=True)),
        ),
    )


def cells(full: Array, window: Window, places: Sizes) -> Iterator[tuple[Sizes, Array]]:
    """Yield each kernel cell, and the view (N, C, *places) of the elements it covers, for padded images."""
    for cell, part in _parts(window, places):
        yield cell, full[part]


def unpadded(full: Array, window: Window, size: Sizes) -> Array:
    """Remove the padding of images: return contiguous images of the given size."""
    inner = full[_inner(window, size)]
    return inner if inner.shape == full.shape else array_module(full).ascontiguousarray(inner)


def _inner(window: Window, size: Sizes) -> tuple[slice, ...]:
    sides = zip(window.paddings, size, strict=True)
    return (*_EACH, *(slice(pad, pad + each) for pad, each in sides))


@lru_cache(maxsize=256)
def _parts(window: Window, places: Sizes) -> tuple[tuple[Sizes, tuple[slice, ...]], ...]:
    """Return (kernel cell, part of the padded images that it covers) for each cell."""
    found = []
    for cell in product(*map(range, window.kernel)):
        sides = zip(cell, window.dilations, places, window.strides, strict=True)
        starts = [(at * dilation, count, step) for at, dilation, count, step in sides]
        slices = (slice(start, start + (count - 1) * step + 1, step) for start, count, step in starts)
        found.append((cell, (*_EACH, *slices)))
    return tuple(found)
