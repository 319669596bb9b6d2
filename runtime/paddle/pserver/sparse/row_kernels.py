# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over rows in slabs.

A slab of 2^bits rows is, at one address, all their floats (row after row: values, then each state) and
then their ticks, uint32. A row's number is its slab's number and its place therein. `slabs` (k,) uint64 are
the addresses. Rows are brought near well before they are used.

    number   | slab | place: bits |

    slab     address | row 0: values, state 1, state 2 | row 1 | .. | row 2^bits − 1 |     4 · floats bytes each
                     | tick 0 | tick 1 | .. | tick 2^bits − 1 |                            4 bytes each

Ticks lie apart: whoever looks for old rows, or for changed ones, reads 4 bytes of each and not the row. A slab never
moves, so an address is good as long as its row is there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from paddle.pserver.sparse.compiling import (
    compiled,
    copy_bytes,
    float32s,
    inner,
    prefetch,
    touch_at,
    uint32s,
)
from paddle.pserver.sparse.index_kernels import ABSENT, mix
from paddle.pserver.sparse.mixing import GAMMA

CONSTANT, UNIFORM, NORMAL, ZERO = 0, 1, 2, 3
"""How a row is drawn; ZERO: it is 0 whatever the mean."""

_AHEAD = 24
_LINE = 64
_4, _8, _32 = np.uint64(4), np.uint64(8), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_GAMMA = np.uint64(GAMMA)


@inner
def row_address(slabs: Any, bits: Any, floats: Any, number: Any) -> Any:
    """Return where a row's floats are."""
    place = np.int64(number) & ((1 << bits) - 1)
    return slabs[np.int64(number) >> bits] + _4 * np.uint64(place * floats)


@inner
def tick_address(slabs: Any, bits: Any, floats: Any, number: Any) -> Any:
    """Return where a row's tick is."""
    place = np.int64(number) & ((1 << bits) - 1)
    return slabs[np.int64(number) >> bits] + _4 * np.uint64((floats << bits) + place)


@inner
def prefetch_row(slabs: Any, bits: Any, floats: Any, number: Any, used: Any) -> None:
    """Begin to bring the first `used` floats of a row near."""
    at = row_address(slabs, bits, floats, number)
    for offset in range(0, 4 * used, _LINE):
        prefetch(at + np.uint64(offset))


@inner
def _even(half: Any, mean: Any, spread: Any) -> Any:
    # 24 of 32 random bits, as many as a float32 has: 0 .. 2^24 − 1 becomes −1 .. 1 − 2^−23 without being rounded.
    return np.float32(mean + spread * (np.float64(half >> _8) * 2.0**-23 - 1.0))


@inner
def draw(key: Any, kind: Any, mean: Any, spread: Any, row_id: Any, out: Any) -> None:
    """Write a new row's values to out (width,) float32: see `initial`."""
    width = len(out)
    if kind in (CONSTANT, ZERO):
        out[:] = np.float32(mean if kind == CONSTANT else 0.0)
        return
    start = mix(np.uint64(row_id) ^ key)
    if kind == UNIFORM:
        # No word depends on the one before, so that several are computed at once.
        for pair in range(width // 2):
            drawn = mix(start + np.uint64(pair + 1) * _GAMMA)
            out[2 * pair] = _even(drawn >> _32, mean, spread)
            out[2 * pair + 1] = _even(drawn & _LOW, mean, spread)
        if width % 2:
            out[width - 1] = _even(mix(start + np.uint64(width // 2 + 1) * _GAMMA) >> _32, mean, spread)
        return
    for at in range(0, width, 2):
        drawn = mix(start + np.uint64(at // 2 + 1) * _GAMMA)
        # Box and Muller: one word gives two numbers. 1 is added, since 0 has no logarithm.
        r = math.sqrt(-2.0 * math.log((np.float64(drawn >> _32) + 1.0) * 2.0**-32))
        phi = 2.0 * math.pi * (np.float64(drawn & _LOW) * 2.0**-32)
        out[at] = np.float32(mean + spread * (r * math.cos(phi)))
        if at + 1 < width:
            out[at + 1] = np.float32(mean + spread * (r * math.sin(phi)))


@compiled
def read(
    slabs: Any,
    bits: Any,
    floats: Any,
    numbers: Any,
    ids: Any,
    key: Any,
    kind: Any,
    mean: Any,
    spread: Any,
    out: Any,
) -> None:
    """Write the values of rows (n,) to out (n, width); those that are ABSENT are drawn."""
    # Values alone are fetched, not the states behind them. The first ones have nobody who fetched them before.
    count, width = out.shape
    first = np.uint64(out.ctypes.data)
    for i in range(min(_AHEAD, count)):
        if numbers[i] != ABSENT:
            prefetch_row(slabs, bits, floats, numbers[i], width)
    for i in range(count):
        if i + _AHEAD < count and numbers[i + _AHEAD] != ABSENT:
            prefetch_row(slabs, bits, floats, numbers[i + _AHEAD], width)
        if numbers[i] == ABSENT:
            draw(key, kind, mean, spread, ids[i], out[i])
        else:
            copy_bytes(
                first + np.uint64(4 * width * i), row_address(slabs, bits, floats, numbers[i]), 4 * width
            )


@compiled
def gather(slabs: Any, bits: Any, floats: Any, numbers: Any, parts: Any, ticks: Any) -> None:
    """Copy rows (n,) to parts (parts, n, width) and their ticks to (n,) uint32."""
    # A row is values and states side by side; in `parts` all rows' values come first, then all rows' states.
    num_parts, _, width = parts.shape
    count = len(numbers)
    for i in range(min(_AHEAD, count)):
        prefetch_row(slabs, bits, floats, numbers[i], floats)
        prefetch(tick_address(slabs, bits, floats, numbers[i]))
    for i in range(count):
        if i + _AHEAD < count:
            prefetch_row(slabs, bits, floats, numbers[i + _AHEAD], floats)
            prefetch(tick_address(slabs, bits, floats, numbers[i + _AHEAD]))
        row = float32s(row_address(slabs, bits, floats, numbers[i]), floats)
        for part in range(num_parts):
            for j in range(width):
                parts[part, i, j] = row[part * width + j]
        ticks[i] = uint32s(tick_address(slabs, bits, floats, numbers[i]), 1)[0]


@compiled
def begin(
    slabs: Any,
    bits: Any,
    floats: Any,
    numbers: Any,
    ids: Any,
    fresh: Any,
    key: Any,
    kind: Any,
    mean: Any,
    spread: Any,
    tick: Any,
    parts: Any,
    ticks: Any,
) -> None:
    """Gather rows (n,), but draw the values of those that are fresh (n,) bool: states 0, and one tick."""
    num_parts, count, width = parts.shape
    for i in range(count):
        if i + _AHEAD < count and not fresh[i + _AHEAD]:
            prefetch_row(slabs, bits, floats, numbers[i + _AHEAD], floats)
            prefetch(tick_address(slabs, bits, floats, numbers[i + _AHEAD]))
        if fresh[i]:
            draw(key, kind, mean, spread, ids[i], parts[0, i])
            for part in range(1, num_parts):
                parts[part, i] = np.float32(0.0)
            ticks[i] = tick
        else:
            row = float32s(row_address(slabs, bits, floats, numbers[i]), floats)
            for part in range(num_parts):
                for j in range(width):
                    parts[part, i, j] = row[part * width + j]
            ticks[i] = uint32s(tick_address(slabs, bits, floats, numbers[i]), 1)[0]


@compiled
def scatter(slabs: Any, bits: Any, floats: Any, numbers: Any, parts: Any, ticks: Any) -> None:
    """Undo `gather`: write parts and ticks back."""
    num_parts, _, width = parts.shape
    for i in range(len(numbers)):
        row = float32s(row_address(slabs, bits, floats, numbers[i]), floats)
        for part in range(num_parts):
            for j in range(width):
                row[part * width + j] = parts[part, i, j]
        uint32s(tick_address(slabs, bits, floats, numbers[i]), 1)[0] = ticks[i]


@compiled
def read_ticks(slabs: Any, bits: Any, floats: Any, numbers: Any, out: Any) -> None:
    """Write the ticks of rows (n,) to out (n,) uint32."""
    count = len(numbers)
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(tick_address(slabs, bits, floats, numbers[i + _AHEAD]))
        out[i] = uint32s(tick_address(slabs, bits, floats, numbers[i]), 1)[0]


@compiled
def write_ticks(slabs: Any, bits: Any, floats: Any, numbers: Any, ticks: Any) -> None:
    """Give rows (n,) other ticks (n,) uint32."""
    for i in range(len(numbers)):
        uint32s(tick_address(slabs, bits, floats, numbers[i]), 1)[0] = ticks[i]


@compiled
def add_up(values: Any, order: Any, starts: Any, which: Any, out: Any) -> None:
    """Write to out[i] the sum of the values at order[starts[k] : starts[k + 1]], k = which[i], added in that order.

    Args:
        values: (m, width) float32, C-contiguous.
        order: (m,) int64, starts: (k + 1,) int64, which: (n,) int64.
        out: (n, width) float32.
    """
    # Only the first gradient of a sum is fetched ahead: one there always is.
    count, width = out.shape
    base = np.uint64(values.ctypes.data)
    for i in range(count):
        if i + _AHEAD < count:
            at = base + _4 * np.uint64(width * order[starts[which[i + _AHEAD]]])
            for offset in range(0, 4 * width, _LINE):
                prefetch(at + np.uint64(offset))
        begin, end = starts[which[i]], starts[which[i] + 1]
        row = order[begin]
        for j in range(width):
            out[i, j] = values[row, j]
        for k in range(begin + 1, end):
            row = order[k]
            for j in range(width):
                out[i, j] += values[row, j]


@compiled
def touch(first: Any, last: Any, page: Any) -> None:
    """Have memory found for pages of so many bytes, from the last back to the first (addresses, uint64)."""
    at = last
    while at > first:
        touch_at(at)
        at -= page
    touch_at(first)
