# SPDX-License-Identifier: Apache-2.0
"""Windows that slide over volumes (N, C, D, H, W): one product a cell of the kernel, over all places at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Cube:
    """Size of a kernel and how it moves; all have three numbers, (depth, height, width)."""

    kernel: Sizes
    strides: Sizes
    paddings: Sizes
    dilations: Sizes = (1, 1, 1)

    def __post_init__(self) -> None:
        triples = (self.kernel, self.strides, self.paddings, self.dilations)
        if any(len(each) != 3 for each in triples) or min(self.kernel + self.strides + self.dilations) < 1:
            raise AttrError(f"a window over volumes needs three positive numbers each, got {self}")
        if min(self.paddings) < 0:
            raise AttrError(f"paddings must not be negative, got {self.paddings}")

    @property
    def extent(self) -> Sizes:
        """How far a dilated kernel reaches."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True))

    def places(self, size: Sizes, ceil_mode: bool = False) -> Sizes:
        """Return how many windows fit along each side; -1 where the size is unknown.

        Raises:
            ShapeError: not one fits.
        """
        found = []
        for each, reach, stride, pad in zip(size, self.extent, self.strides, self.paddings, strict=True):
            free = each + 2 * pad - reach
            if each >= 0 and free < 0:
                raise ShapeError(
                    f"a window {self.extent} has no room in {size} with paddings {self.paddings}"
                )
            found.append(-1 if each < 0 else (free + (stride - 1 if ceil_mode else 0)) // stride + 1)
        return tuple(found)

    def grown(self, size: Sizes) -> Sizes:
        """Return the size of the volume whose windows have as many places as `size` says."""
        return tuple(
            -1 if each < 0 else (each - 1) * stride - 2 * pad + reach
            for each, stride, pad, reach in zip(size, self.strides, self.paddings, self.extent, strict=True)
        )

    def cells(self, volume: Array, places: Sizes) -> Iterator[tuple[Sizes, Array]]:
        """Yield (cell of the kernel, view (N, C, *places) of what it lies over) of a padded volume."""
        for cell in product(*map(range, self.kernel)):
            starts = [at * dilation for at, dilation in zip(cell, self.dilations, strict=True)]
            parts = [
                slice(start, start + stride * (count - 1) + 1, stride)
                for start, stride, count in zip(starts, self.strides, places, strict=True)
            ]
            yield cell, volume[(slice(None), slice(None), *parts)]

    def padded(self, x: Array, places: Sizes, value: float = 0.0) -> Array:
        """Return volumes with padding, enough for all places."""
        widths = [(0, 0), (0, 0)]
        for size, count, stride, pad, reach in zip(
            x.shape[2:], places, self.strides, self.paddings, self.extent, strict=True
        ):
            widths.append((pad, max((count - 1) * stride + reach - size - pad, 0)))
        return array_module(x).pad(x, widths, constant_values=value)

    def unpadded(self, volume: Array, size: Sizes) -> Array:
        """Return the part of a padded volume that is no padding."""
        inner = [slice(pad, pad + each) for pad, each in zip(self.paddings, size, strict=True)]
        return volume[(slice(None), slice(None), *inner)]
