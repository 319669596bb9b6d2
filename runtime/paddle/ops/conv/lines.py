# SPDX-License-Identifier: Apache-2.0
"""The compiled loops of convolutions (`kernels/conv.c`) and their preconditions; `direct` prepares their arguments.

Images in line layout are padded after their last position by the size of a tile, since loops do not check indices.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.kernels.library import Kernels, address
from paddle_node.contract.classes import NamedTuple

KERNELS = Kernels(
    conv_constants="p",
    conv_convolve="ppnnpnnpnpppp",
    conv_gradient="pppnnnnpnpppp",
    conv_pack="pnnnnpnp",
    conv_unpack="pnnnnpn",
)
_F32, _I64 = np.dtype(np.float32), np.dtype(np.int64)
Three = tuple[int, int, int]


class Plan(NamedTuple):
    """The memory layout of images and output positions: `plan` of `conv.c`, with fields in its order.

    Attributes:
        image: the channels, height and width of the input images.
        made: the channels, height and width of the output.
        room: the rows and the row pitch of an image within a line, and the length of a phase.
        down: the vertical stride, padding and number of phases. Row y of phase r holds row y · stride + r − padding of
            the image.
        across: the same for columns.
        placed: the number of vertical positions, their step and their start, then the same for horizontal positions.
            Position y is row y · step + start of the output.
        chunk: the number of images processed together.
        width: the length of a line.
        column: the length of a column; 0 if images are not copied to columns.
        places: the length of a line of positions.
    """

    image: Three
    made: Three
    room: Three
    down: Three
    across: Three
    placed: tuple[int, int, int, int, int, int]
    chunk: int
    width: int
    column: int
    places: int

    def check(self, tile: int) -> None:
        """Check that all writes of the loops stay within lines, columns, positions and images.

        Raise ValueError if not.
        """
        (rows, pitch, length), (high, down, top, wide, across, left) = self.room, self.placed
        phases = self.down[2] * self.across[2]
        _demand(min(*self.image, *self.made, rows, pitch, self.chunk, phases, high, wide) > 0, "sizes")
        _demand(min(self.down[0], self.across[0], down, across) > 0, "strides")
        _demand(min(top, left) >= 0, "starts")
        _demand(self.chunk * rows * pitch <= length and phases * length <= self.width, "line lengths")
        each = high * wide if self.column else rows * pitch
        _demand(-(-self.chunk * each // tile) * tile <= self.places, "the number of positions")
        _demand(self.column in (0, self.places) and (high <= rows and wide <= pitch), "the number of columns")
        _demand(
            top + (high - 1) * down < self.made[1] and left + (wide - 1) * across < self.made[2], "places"
        )


class Lines:
    """The compiled loops of convolutions for one level of CPU vector instructions.

    Attributes:
        lanes: the number of float32 elements per vector register.
        rows, wide: filters and positions per tile of a convolution.
        left, right: filters and factors per tile of the filter gradient.
        summed: the number of products summed before a tile is stored.
    """

    def __init__(self, functions: Any) -> None:
        """Bind the functions of `KERNELS`."""
        self._functions = functions
        sizes = np.zeros(6, np.int64)
        functions.conv_constants(address(sizes, _I64))
        self.lanes, self.rows, self.wide, self.left, self.right, self.summed = sizes.tolist()

    def convolve(
        self,
        plan: Plan,
        images: Array,
        part: tuple[int, int],
        filters: Array,
        first_channel: int,
        offsets: Array,
        out: Array,
    ) -> None:
        """Convolve images part[0] to part[1] of (N, C, H, W) by packed filters (blocks, K, rows), offsets (K,).

        The results are the channels of out (N, F, H', W') starting at first_channel.
        """
        _demand(first_channel >= 0 and (blocks := len(filters)) > 0, "filters")
        lines, columns, taken = self._room(plan, images, part, plan.image[0], offsets, self.wide)
        numbers, sums = _numbers(plan), np.empty((blocks * self.rows, plan.places), _F32)
        self._functions.conv_convolve(
            address(numbers, _I64),
            address(images, _F32),
            *part,
            address(filters, _F32, blocks * len(offsets) * self.rows),
            blocks,
            first_channel,
            *taken,
            address(lines, _F32),
            columns if columns is None else address(columns, _F32),
            address(sums, _F32),
            address(out, _F32, len(images) * int(np.prod(plan.made))),
        )

    def gradient(
        self,
        plan: Plan,
        images: Array,
        grads: Array,
        part: tuple[int, int],
        channels: tuple[int, int],
        offsets: Array,
        out: Array,
    ) -> None:
        """Add the filter gradient of images part[0] to part[1], for some channels, to `out`.

        images (N, C, H, W), grads (N, F, H', W'), offsets (K,), out (F / left, K / right, right, left).
        """
        blocks = -(-plan.made[0] // self.left)
        _demand(
            0 <= channels[0] < channels[1] <= plan.image[0] and len(offsets) % self.right == 0, "channels"
        )
        lines, columns, taken = self._room(plan, images, part, channels[1] - channels[0], offsets, self.lanes)
        numbers, others = _numbers(plan), np.empty((blocks * self.left, plan.places), _F32)
        self._functions.conv_gradient(
            address(numbers, _I64),
            address(images, _F32),
            address(grads, _F32, len(images) * int(np.prod(plan.made))),
            *part,
            *channels,
            *taken,
            address(lines, _F32),
            columns if columns is None else address(columns, _F32),
            address(others, _F32),
            address(out, _F32, blocks * len(offsets) * self.left),
        )

    def pack(self, filters: Array, count: int, steps: tuple[int, int], channels: int, cells: Array) -> Array:
        """Pack `count` filters into (count / rows, channels · cells, rows), padded with zeros, and return the array.

        Cell i of channel c of filter f is element f steps[0] + c steps[1] + cells[i] of filters.
        """
        last = (count - 1) * steps[0] + (channels - 1) * steps[1] + int(cells.max())
        _demand(min(count, channels, len(cells)) > 0 and int(cells.min()) >= 0 <= min(steps), "cells")
        _demand(last < filters.size, "filters")
        packed = np.empty((-(-count // self.rows), channels * len(cells), self.rows), _F32)
        self._functions.conv_pack(
            address(filters, _F32),
            count,
            *steps,
            channels,
            address(cells, _I64),
            len(cells),
            address(packed, _F32),
        )
        return packed

    def unpack(self, sums: Array, out: Array) -> None:
        """Sum `sums` (groups, F / left, K / right, right, left) over the groups, in order; store the result in `out`.

        `out` is (F, each) with each <= K; its rows need not be contiguous.
        """
        groups, blocks, factors = sums.shape[:3]
        filters, each = out.shape
        _demand(filters <= blocks * self.left and each <= factors * self.right and groups > 0, "sums")
        _demand(out.dtype == _F32 and out.strides[1] == 4 and out.strides[0] % 4 == 0, "the output array")
        self._functions.conv_unpack(
            address(sums, _F32),
            groups,
            filters,
            factors * self.right,
            each,
            out.__array_interface__["data"][0],
            out.strides[0] // 4,
        )

    def _room(
        self, plan: Plan, images: Array, part: tuple[int, int], channels: int, offsets: Array, tile: int
    ) -> tuple[Array, Array | None, tuple[int, int]]:
        """Check the arguments common to both directions; return lines, columns if any, and the offsets."""
        plan.check(tile)
        _demand(images.shape[1:] == plan.image and 0 <= part[0] <= part[1] <= len(images), "images")
        lines = np.empty((channels, plan.width), _F32)
        (rows, pitch, _), (high, _, _, wide, _, _) = plan.room, plan.placed
        reach = plan.chunk * rows * pitch
        if plan.column:
            reach += (high - 1 - rows) * pitch + wide
        else:
            reach = -(-reach // tile) * tile
        _demand(len(offsets) > 0 <= int(offsets.min()), "offsets")
        _demand(int(offsets.max()) + reach <= lines.size, "offsets")
        columns = np.empty((self.summed, plan.column), _F32) if plan.column else None
        return lines, columns, (address(offsets, _I64), len(offsets))


@functools.cache
def compiled() -> Lines | None:
    """Return the compiled loops for the best instructions of this CPU; None if there is no compiled library."""
    return None if KERNELS.loaded is None else Lines(KERNELS.loaded)


def _numbers(plan: Plan) -> Array:
    return np.array([*plan[0], *plan[1], *plan[2], *plan[3], *plan[4], *plan[5], *plan[6:]], np.int64)


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"the plan of a compiled convolution exceeds {what}")
