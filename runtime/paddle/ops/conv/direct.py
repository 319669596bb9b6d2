# SPDX-License-Identifier: Apache-2.0
"""Direct convolution on several cores, without im2col: prepares arguments for the loops in `lines`, piece by piece.

Large float32 images on the host with one group use this path; all others use `im2col`. The division into pieces depends
only on shapes, and pieces are added in order, so results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.kernels import is_plain
from paddle.ops.base.threads import COMPUTE
from paddle.ops.conv import im2col
from paddle.ops.conv.lines import Lines, Plan, compiled
from paddle.ops.conv.window import Sizes, Window
from paddle_node.contract.classes import NamedTuple

# The number of multiplications below which one product of columns is faster than preparing lines.
_LARGE = 1 << 20
# The lines and sums of the images being processed fit in a second-level cache.
_CHUNK_BYTES = 1 << 20
# The maximum number of pieces. Each part of the images has its own gradient of the filters. From _SLICE_BYTES
# of filters on, there are fewer parts and channels are divided instead.
_PIECES, _SLICE_BYTES = 8, 1 << 19
# The number of filters at which copying a factor costs as much as computing it.
_COPY = 40
# Loops compute a fixed number of channels at a time. With fewer than 1/n of that number, most of the work is wasted,
# and adding columns to images is cheaper.
_FEW = 4
# Images with this few positions are faster as columns: their lines would mostly be zeros.
_THIN = 9


class _Tap(NamedTuple):
    cell: int
    phase: int
    shift: int


class _Side(NamedTuple):
    """One spatial axis of images in line layout, and the output positions along it.

    Attributes:
        stride, padding, phases: position y of phase r holds element y stride + r - padding.
        length: positions from one row to the next, or from one image to the next.
        taps: the kernel cells, and their offsets from a position.
        places, step, start: the number of positions; position y is element y step + start of the output.
    """

    stride: int
    padding: int
    phases: int
    length: int
    taps: tuple[_Tap, ...]
    places: int
    step: int
    start: int


def convolve(x: Array, filters: Array, window: Window, groups: int) -> Array:
    """Convolve images with filters; return (N, F, *places)."""
    places = window.places(x.shape[2:])
    lines = _loops(x, filters, places, groups)
    if lines is None:
        return im2col.convolve(x, filters, window, groups)
    sides = _forward(window, x.shape[2:], places)
    out = np.empty((len(x), len(filters), *places), x.dtype)
    _correlate(lines, x, filters, False, sides, out)
    return out


def image_gradient(filters: Array, dout: Array, size: Sizes, window: Window, groups: int) -> Array:
    """Return the gradient of the images, (N, C, *size)."""
    lines = _loops(dout, filters, dout.shape[2:], groups)
    if lines is None or _FEW * filters.shape[1] <= lines.rows:
        return im2col.image_gradient(filters, dout, size, window, groups)
    sides = _backward(window, dout.shape[2:], size)
    complete = len(sides) == prod(window.strides)
    out = (np.empty if complete else np.zeros)((len(dout), filters.shape[1], *size), dout.dtype)
    for each in sides:
        _correlate(lines, dout, filters, True, each, out)
    return out


def filter_gradient(x: Array, dout: Array, filters: Array, window: Window, groups: int) -> Array:
    """Return the gradient of the filters, (F, C, *kernel)."""
    lines = _loops(x, filters, dout.shape[2:], groups)
    if lines is None or not is_plain(dout):
        return im2col.filter_gradient(x, dout, filters, window, groups)
    down, across = _forward(window, x.shape[2:], dout.shape[2:])
    count, channels = len(filters), x.shape[1]
    step = -(-channels // max(1, min(filters.nbytes // _SLICE_BYTES, _PIECES)))
    slices = [(at, min(at + step, channels)) for at in range(0, channels, step)]
    plan = _plan(x, step, count, down, across, dout.shape[1:], lines, lines.lanes)
    parts = _parts(len(x), plan.chunk, max(1, _PIECES // len(slices)))
    offsets = [_offsets(plan, down, across, end - begin, lines.right) for begin, end in slices]
    sums = [
        np.zeros(
            (len(parts), -(-count // lines.left), len(each) // lines.right, lines.right, lines.left), x.dtype
        )
        for each in offsets
    ]

    def work(piece: int) -> None:
        part, at = divmod(piece, len(slices))
        lines.gradient(plan, x, dout, parts[part], slices[at], offsets[at], sums[at][part])

    COMPUTE.run(work, len(parts) * len(slices))
    found = np.empty((count, channels * prod(window.kernel)), x.dtype)
    for (begin, end), each in zip(slices, sums, strict=True):
        lines.unpack(each, found[:, begin * prod(window.kernel) : end * prod(window.kernel)])
    return found.reshape(filters.shape)


def _loops(images: Array, filters: Array, places: Sizes, groups: int) -> Lines | None:
    """Return the compiled loops, or None if `im2col` is to be used."""
    if (
        groups != 1
        or len(places) != 2
        or prod(places) < _THIN
        or len(images) * prod(places) * filters.size < _LARGE
        or not (is_plain(images) and is_plain(filters))
    ):
        return None
    return compiled()


def _correlate(
    lines: Lines, x: Array, filters: Array, back: bool, sides: tuple[_Side, _Side], out: Array
) -> None:
    """Store in `out` the correlation of images x with the kernel cells that the sides describe.

    Filters are (F, C, *kernel), or, if `back`, map F to C channels.
    """
    down, across = sides
    over_filters, over_channels, over_rows, over_cells = (
        step // filters.itemsize for step in filters.strides
    )
    if back:
        over_filters, over_channels = over_channels, over_filters
    count = out.shape[1]
    cells = np.array([i.cell * over_rows + j.cell * over_cells for i in down.taps for j in across.taps])
    packed = lines.pack(filters, count, (over_filters, over_channels), x.shape[1], cells)
    plan = _plan(x, x.shape[1], count, down, across, out.shape[1:], lines, lines.wide)
    offsets, parts = _offsets(plan, down, across, x.shape[1]), _parts(len(x), plan.chunk, _PIECES)
    # Filters are divided only if there are too few images, since each piece prepares its own lines.
    blocks = -(-len(packed) // max(1, COMPUTE.count // len(parts)))
    pieces = [(part, block) for part in parts for block in range(0, len(packed), blocks)]

    def work(piece: int) -> None:
        part, block = pieces[piece]
        lines.convolve(plan, x, part, packed[block : block + blocks], block * lines.rows, offsets, out)

    COMPUTE.run(work, len(pieces))


def _forward(window: Window, size: Sizes, places: Sizes) -> tuple[_Side, _Side]:
    first, second = (
        _side(
            size[axis],
            places[axis],
            window.strides[axis],
            window.paddings[axis],
            [
                _Tap(cell, *reversed(divmod(cell * window.dilations[axis], window.strides[axis])))
                for cell in range(window.kernel[axis])
            ],
        )
        for axis in range(2)
    )
    return first, second


def _backward(window: Window, places: Sizes, size: Sizes) -> list[tuple[_Side, _Side]]:
    """Return the sides for each residue class of pixels: a stride of s divides an axis into up to s classes.

    Element y of an image, at u stride + a with its padding, reads position u - shift for the cells of phase a.
    """

    def of(axis: int) -> Iterable[_Side]:
        stride, pad, dilation = window.strides[axis], window.paddings[axis], window.dilations[axis]
        for a in range(stride):
            taps = [
                (cell, cell * dilation // stride)
                for cell in range(window.kernel[axis])
                if cell * dilation % stride == a
            ]
            first, last = max(0, -((a - pad) // stride)), (size[axis] - 1 + pad - a) // stride
            if not taps or last < first:
                continue
            furthest = max(shift for _, shift in taps)
            yield _side(
                places[axis],
                last - first + 1,
                1,
                furthest - first,
                [_Tap(cell, 0, furthest - shift) for cell, shift in taps],
            )._replace(step=stride, start=first * stride + a - pad)

    return [(down, across) for down in of(0) for across in of(1)]


def _side(size: int, places: int, stride: int, padding: int, taps: list[_Tap]) -> _Side:
    """Return a side whose positions are contiguous in the output.

    Rows may end with their last position, and then share the padding that follows with the next row.
    """
    reach = places + max(tap.shift for tap in taps)
    shared = max(size + padding, places)
    length = shared if stride == 1 and padding > 0 and reach - shared <= padding else reach
    return _Side(stride, padding, max(tap.phase for tap in taps) + 1, length, tuple(taps), places, 1, 0)


def _plan(
    x: Array, channels: int, count: int, down: _Side, across: _Side, made: Sizes, lines: Lines, tile: int
) -> Plan:
    """Return the memory layout for the given numbers of channels of x, filters, and positions per tile."""
    image, grid = down.length * across.length, down.places * across.places
    # Positions between rows are computed needlessly; omitting them costs a copy of each factor.
    compact = image > grid * (1 + _COPY / count)
    each = grid if compact else image
    phases = down.phases * across.phases
    numbers = channels * phases * image + count * each + (lines.summed * grid if compact else 0)
    most = max(1, min(len(x), _CHUNK_BYTES // (numbers * x.dtype.itemsize)))
    chunk = min(range(1, most + 1), key=lambda images: (_up(images * each, tile) / images, -images))
    reach = max(tap.shift for tap in down.taps) * across.length + max(tap.shift for tap in across.taps)
    places = _up(chunk * each, tile)
    return Plan(
        _three(x.shape[1:]),
        _three(made),
        (down.length, across.length, chunk * image),
        (down.stride, down.padding, down.phases),
        (across.stride, across.padding, across.phases),
        (down.places, down.step, down.start, across.places, across.step, across.start),
        chunk,
        _up(phases * chunk * image + reach + tile, lines.lanes),
        places if compact else 0,
        places,
    )


def _three(sizes: Sizes) -> tuple[int, int, int]:
    first, second, third = sizes
    return first, second, third


def _offsets(
    plan: Plan, down: _Side, across: _Side, channels: int, multiple: int = 1
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the offset of each factor from its position, (C · cells,), padded by repetition to a multiple."""
    _, pitch, length = plan.room
    cells = [
        (first.phase * across.phases + second.phase) * length + first.shift * pitch + second.shift
        for first in down.taps
        for second in across.taps
    ]
    every = (np.arange(channels)[:, None] * plan.width + np.array(cells, np.int64)).reshape(-1)
    return np.resize(every, _up(len(every), multiple))


def _parts(images: int, chunk: int, most: int) -> list[tuple[int, int]]:
    """Split images into at most the given number of pieces of whole chunks."""
    each = _up(_up(images, chunk) // chunk, most) // most * chunk
    return [(first, min(first + each, images)) for first in range(0, images, each)]


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
