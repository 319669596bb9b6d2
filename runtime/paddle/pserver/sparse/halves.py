# SPDX-License-Identifier: Apache-2.0
"""The storage form of rows with IEEE 754 binary16 (float16) values and float32 states.

A stored row consists of 4-byte cells: its values, two float16 per cell, then everything else. Everywhere else, values
are float32. Widening is exact, and narrowing a widened number gives the original float16. Narrowing rounds to the
nearest, ties to even; a NaN becomes quiet and keeps its sign and the upper bits of its payload. `kernels/halves.h` is
the compiled form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.uint16]

ROW_DTYPES = ("float32", "float16")
MOST, OVERFLOW = 65504.0, 65520.0
"""The largest half, and the smallest float32 that does not become a finite one."""
_INFINITE, _QUIET = 0x7C00, 0x0200


def narrowed(numbers: Floats) -> Halves:
    """Return float32 numbers of any shape rounded to float16, ties to even."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        halves = numbers.astype(np.float16).view(np.uint16)
    if (is_nan := np.isnan(numbers)).any():
        bits = np.ascontiguousarray(numbers).view(np.uint32)[is_nan]
        halves[is_nan] = (bits >> 16 & 0x8000) | _INFINITE | _QUIET | (bits >> 13 & 0x3FF)
    return halves


def widened(halves: Halves) -> Floats:
    """Return float16 numbers of any shape as float32, exactly."""
    is_nan = halves & np.uint16(0x7FFF) > _INFINITE
    quiet = np.where(is_nan, halves | np.uint16(_QUIET), halves) if is_nan.any() else halves
    return quiet.view(np.float16).astype(np.float32)


def largest_of(halves: Halves, most: int = 0) -> int:
    """Return the largest magnitude among float16 numbers and `most`, as bits."""
    return int((halves & np.uint16(0x7FFF)).max(initial=np.uint16(most)))


def magnitude(bits: int) -> float:
    """Return the magnitude of a float16 number, given as bits; infinity for NaN."""
    return float(np.uint16(min(bits, _INFINITE)).view(np.float16))


def cells_of(width: int, floats: int, *, is_half: bool) -> int:
    """Return the number of cells of a row with `floats` numbers, of which `width` are values."""
    return floats - width + (width + 1) // 2 if is_half else floats


def packed(parts: Floats, width: int, *, is_half: bool) -> Floats:
    """Return rows (parts, n, part) float32 in their stored form, (n, cells) of 4 bytes each."""
    count, n, part = parts.shape
    floats = np.ascontiguousarray(parts.swapaxes(0, 1)).reshape(n, count * part)
    if not is_half:
        return floats
    cells = np.zeros((n, cells_of(width, floats.shape[1], is_half=True)), np.float32)
    cells.view(np.uint16)[:, :width] = narrowed(floats[:, :width])
    cells[:, (width + 1) // 2 :] = floats[:, width:]
    return cells


def unpacked(cells: Floats, shape: tuple[int, int], width: int, *, is_half: bool) -> npt.NDArray[Any]:
    """Return rows (parts, n, part) from their contiguous stored form (n, cells).

    Args:
        shape: parts and part.
    """
    if is_half:
        values = widened(cells.view(np.uint16)[:, :width])
        cells = np.concatenate((values, cells[:, (width + 1) // 2 :]), axis=1)
    return cells.reshape(len(cells), *shape).swapaxes(0, 1)
