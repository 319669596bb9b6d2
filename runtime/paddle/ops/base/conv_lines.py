# SPDX-License-Identifier: Apache-2.0
"""Compiled loops of convolutions without columns: float32, two sides, one group; `conv.direct` lays out what they take.

Images become lines: each channel of a few images is one line with zeros around the rows. In a line every cell of the
kernel lies at a constant distance from its place, so that a convolution is a sum of shifted lines:

    image      its line at padding 1, pitch 3: rows share the zero between them
    a b        0 0 0 0 a b 0 c d 0 0 0 ...
    c d        place q (of the window) takes q, q+1, q+2, q+3, .., q+8; places of the last column mean nothing

Where windows move by more than one, there is a line for each remainder (phase) of rows and columns. No loop looks at
indices: arrays have as much after their last place as tiles reach over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.compiling import compiled
from paddle.ops.base.conv_tiles import (
    LANES,
    LEFT,
    RIGHT,
    ROWS,
    WIDE,
    copy_rows,
    dots,
    multiply,
)

# Products that are summed up before a tile is put down: the lines they read stay in the first-level cache.
SUMMED = 288
# Numbers of each line that are multiplied at a time: those of a tile stay in the first-level cache.
STRETCH = 1024


@compiled
def convolve_part(
    images: Any,
    shape: Any,
    part: Any,
    filters: Any,
    offsets: Any,
    room: Any,
    down: Any,
    across: Any,
    lines: Any,
    columns: Any,
    sums: Any,
    placed: Any,
    out: Any,
) -> None:
    """Convolve images [part[0], part[1]), part[2] at a time, by filters from number part[3] on.

    filters (F / ROWS, K, ROWS), offsets (K,); lines, columns and sums are room to work in. The rest as in `fill`,
    `correlate` and `take`.
    """
    first, last, chunk, first_filter = part
    lines[:] = 0
    columns[:] = 0
    grid = (placed[0], placed[3])
    for begin in range(first, last, chunk):
        count = min(chunk, last - begin)
        fill(images, shape, begin, count, 0, shape[0], room, down, across, lines)
        correlate(filters, lines, offsets, count, room, grid, columns, sums)
        take(sums, begin, count, grid if columns.shape[0] else room[:2], placed, first_filter, out)


@compiled
def gradient_part(
    images: Any,
    shape: Any,
    grads: Any,
    grads_shape: Any,
    part: Any,
    offsets: Any,
    room: Any,
    down: Any,
    across: Any,
    plain: Any,
    lines: Any,
    columns: Any,
    others: Any,
    out: Any,
) -> None:
    """Add the filters' gradient of images [part[0], part[1]), part[2] at a time, to out.

    Of images the channels [part[3], part[4]) are taken; of grads all, by a window that is `plain`, (1, 0, 1): one
    cell. offsets (K,), out (F / LEFT, K / RIGHT, RIGHT, LEFT).
    """
    first, last, chunk, begin_channel, end_channel = part
    grid = (grads_shape[1], grads_shape[2])
    at = (grid[0], grid[1], 0) if columns.shape[0] else room
    lines[:] = 0
    columns[:] = 0
    others[:] = 0
    for begin in range(first, last, chunk):
        count = min(chunk, last - begin)
        if count < chunk:
            others[:] = 0  # what is there of images before must not count again
        fill(images, shape, begin, count, begin_channel, end_channel, room, down, across, lines)
        fill(grads, grads_shape, begin, count, 0, grads_shape[0], at, plain, plain, others)
        correlate_lines(others, lines, offsets, count, room, grid, columns, out)


@compiled
def fill(
    images: Any,
    shape: Any,
    first: Any,
    count: Any,
    begin_channel: Any,
    end_channel: Any,
    room: Any,
    down: Any,
    across: Any,
    lines: Any,
) -> None:
    """Lay images [first, first + count) out as lines (channels, phases of rows, of columns, images, rows, pitch).

    images (N · C · H · W,), shape is (C, H, W), channels are those of [begin_channel, end_channel). down and across are
    (stride, padding, phases): row y of phase r is row y stride + r - padding of the image. room is (rows, pitch,
    numbers of a phase). What lies around images is left as it is: zero.
    """
    # Views of rows would cost more than what is copied; so both sides are flat.
    channels, height, width = shape
    rows, pitch, length = room
    flat, line_length = lines.reshape(-1), lines.shape[1]
    for channel in range(begin_channel, end_channel):
        for r in range(down[2]):
            for s in range(across[2]):
                line = (channel - begin_channel) * line_length + (r * across[2] + s) * length
                # columns x with 0 <= x stride + s - padding < width
                begin = max(0, -((s - across[1]) // across[0]))
                end = min(pitch, (width - 1 + across[1] - s) // across[0] + 1)
                # rows likewise
                top = max(0, -((r - down[1]) // down[0]))
                bottom = min(rows, (height - 1 + down[1] - r) // down[0] + 1)
                for image in range(count):
                    source = ((first + image) * channels + channel) * height * width
                    source += begin * across[0] + s - across[1]
                    target = line + image * rows * pitch + begin
                    source += (top * down[0] + r - down[1]) * width
                    target += top * pitch
                    if across[0] == 1:
                        copy_rows(
                            flat, target, pitch, images, source, down[0] * width, bottom - top, end - begin
                        )
                        continue
                    for y in range(bottom - top):
                        for x in range(end - begin):
                            flat[target + y * pitch + x] = images[
                                source + y * down[0] * width + x * across[0]
                            ]


@compiled
def take(lines: Any, first: Any, count: Any, room: Any, placed: Any, first_channel: Any, images: Any) -> None:
    """Put the places of lines (channels, (images, rows, pitch)) into images [first, first + count).

    Lines are channels from first_channel on, as far as there are so many; room is (rows, pitch). placed is (places
    down, step, start, places across, step, start): place y is row y step + start of the image.
    """
    rows, pitch = room
    high, step_down, top, wide, step, left = placed
    channels, height, width = images.shape[1:]
    flat, target = lines.reshape(-1), images.reshape(-1)
    for image in range(count):
        for channel in range(first_channel, min(channels, first_channel + lines.shape[0])):
            source = (channel - first_channel) * lines.shape[1] + image * rows * pitch
            begin = (((first + image) * channels + channel) * height + top) * width + left
            if step == 1:
                copy_rows(target, begin, step_down * width, flat, source, pitch, high, wide)
                continue
            for y in range(high):
                for x in range(wide):
                    target[begin + y * step_down * width + x * step] = flat[source + y * pitch + x]


@compiled
def correlate(
    filters: Any, lines: Any, offsets: Any, images: Any, room: Any, grid: Any, columns: Any, out: Any
) -> None:
    """out (F, pitch) = Σ filters (F / ROWS, K, ROWS) lines[offsets (K,)], over the places of so many images.

    If there is room for columns (SUMMED, places) lines are copied there first, without what lies between rows of the
    grid of places.
    """
    compact = columns.shape[0] > 0
    flat_filters, flat_out = filters.reshape(-1), out.reshape(-1)
    source = columns.reshape(-1) if compact else lines.reshape(-1)
    steps = np.arange(columns.shape[0]) * columns.shape[1] if compact else offsets
    length = images * (grid[0] * grid[1] if compact else room[0] * room[1])
    total, pitch = offsets.size, out.shape[1]
    for begin in range(0, total, SUMMED):
        count = min(SUMMED, total - begin)
        if compact:
            gather(lines, offsets[begin : begin + count], images, room, grid, columns)
        for place in range(0, length, WIDE):
            for block in range(filters.shape[0]):
                multiply(
                    flat_filters,
                    (block * total + begin) * ROWS,
                    source,
                    place,
                    steps,
                    0 if compact else begin,
                    count,
                    flat_out,
                    block * ROWS * pitch + place,
                    pitch,
                    begin > 0,
                )


@compiled
def correlate_lines(
    grads: Any, lines: Any, offsets: Any, images: Any, room: Any, grid: Any, columns: Any, out: Any
) -> None:
    """out (F / LEFT, K / RIGHT, RIGHT, LEFT) += grads (F, pitch) lines[offsets (K,)], over places; see `correlate`."""
    compact = columns.shape[0] > 0
    flat_grads, flat_out = grads.reshape(-1), out.reshape(-1)
    source = columns.reshape(-1) if compact else lines.reshape(-1)
    steps = np.arange(columns.shape[0]) * columns.shape[1] if compact else offsets
    length = images * (grid[0] * grid[1] if compact else room[0] * room[1])
    length = -(-length // LANES) * LANES
    pitch, total = grads.shape[1], offsets.size
    at_once = SUMMED if compact else total
    for k_begin in range(0, total, at_once):
        k_end = min(k_begin + at_once, total)
        if compact:
            gather(lines, offsets[k_begin:k_end], images, room, grid, columns)
        for begin in range(0, length, STRETCH):
            count = min(STRETCH, length - begin)
            for block in range(out.shape[0]):
                for k in range(k_begin, k_end, RIGHT):
                    dots(
                        flat_grads,
                        block * LEFT * pitch + begin,
                        pitch,
                        source,
                        begin,
                        steps,
                        k - k_begin if compact else k,
                        count,
                        flat_out,
                        block * LEFT * total + k * LEFT,
                    )


@compiled
def gather(lines: Any, offsets: Any, images: Any, room: Any, grid: Any, columns: Any) -> None:
    """columns[k] (images, rows and columns of the grid) = lines[offsets[k]] without what lies between rows."""
    high, wide = grid
    flat, target, size = lines.reshape(-1), columns.reshape(-1), room[0] * room[1]
    for k in range(offsets.size):
        for image in range(images):
            to = k * columns.shape[1] + image * high * wide
            copy_rows(target, to, wide, flat, offsets[k] + image * size, room[1], high, wide)


@compiled
def pack(filters: Any, count: Any, filter_step: Any, channel_step: Any, cells: Any, out: Any) -> None:
    """out (F / ROWS, K, ROWS) = filters by blocks; K goes over channels and cells. What is beyond count is zero.

    filters (n,): cell i of channel c of filter f is number f filter_step + c channel_step + cells[i].
    """
    flat, at = out.reshape(-1), 0
    for block in range(out.shape[0]):
        rows = min(ROWS, count - block * ROWS)
        for channel in range(out.shape[1] // cells.size):
            first = block * ROWS * filter_step + channel * channel_step
            for cell in cells:
                for m in range(ROWS):
                    flat[at] = filters[first + cell + m * filter_step] if m < rows else 0
                    at += 1


@compiled
def unpack(sums: Any, out: Any) -> None:
    """out (F, channels, cells) = Σ sums (groups, F / LEFT, K / RIGHT, RIGHT, LEFT), in the order of groups."""
    for f in range(out.shape[0]):
        for k in range(out.shape[1] * out.shape[2]):
            total = sums[0, f // LEFT, k // RIGHT, k % RIGHT, f % LEFT]
            for group in range(1, sums.shape[0]):
                total += sums[group, f // LEFT, k // RIGHT, k % RIGHT, f % LEFT]
            out[f, k // out.shape[2], k % out.shape[2]] = total
