# SPDX-License-Identifier: Apache-2.0
"""Rows with values in float16: all halves, ties and edges, in the plain form and at every speed level."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from paddle.kernels import library
from paddle.pserver.sparse import rows
from paddle.pserver.sparse.blocks import cells_of
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.rows import CompiledRows, PlainRows, rows_of

BITS = 18
ALL = np.arange(1 << 16, dtype=np.uint16)
IS_NAN = (ALL & 0x7FFF) > 0x7C00


@pytest.fixture(params=[0, *library.levels()], autouse=True)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    loops = rows.KERNELS.at_level(request.param) if request.param else None
    monkeypatch.setattr(rows.KERNELS, "loaded", loops)


def rows_with(slab: np.ndarray, width: int) -> CompiledRows | PlainRows:
    """Return rows without states, of one slab."""
    form = rows_of(BITS, width, 1, Initial(), 0, is_half=True)
    form.add(slab)
    return form


def slab_of(width: int) -> np.ndarray:
    return np.zeros(4 * (cells_of(width, width, is_half=True) + 1) << BITS, np.uint8)


def halves_of(numbers: np.ndarray, width: int) -> np.ndarray:
    """Write numbers as rows, and return the halves that are in memory."""
    count = -(-len(numbers) // width)
    values = np.zeros((1, count, width), np.float32)
    values.reshape(-1)[: len(numbers)] = numbers
    slab = slab_of(width)
    form = rows_with(slab, width)
    form.scatter(np.arange(count, dtype=np.uint32), values, np.zeros(count, np.uint32))
    cells = cells_of(width, width, is_half=True)
    found = slab[: 4 * cells * count].view(np.uint16).reshape(count, 2 * cells)[:, :width]
    return found.reshape(-1)[: len(numbers)]


def number_of(half: int) -> float:
    return float(struct.unpack("<e", struct.pack("<H", half))[0])


def half_of(number: float) -> int:
    try:
        return int(struct.unpack("<H", struct.pack("<e", number))[0])
    except OverflowError:
        return 0x7C00 if number > 0 else 0xFC00


@pytest.mark.parametrize("width", [1, 3, 8, 17])
def test_every_half_is_widened_exactly_and_comes_back(width: int) -> None:
    count = -(-len(ALL) // width)
    padded = np.resize(ALL, count * width).reshape(count, width)
    cells = cells_of(width, width, is_half=True)
    slab = slab_of(width)
    slab[: 4 * cells * count].view(np.uint16).reshape(count, 2 * cells)[:, :width] = padded
    form, numbers = rows_with(slab, width), np.arange(count, dtype=np.uint32)
    parts, ticks = np.empty((1, count, width), np.float32), np.empty(count, np.uint32)
    form.gather(numbers, parts, ticks)
    read = np.empty((count, width), np.float32)
    form.read(numbers, np.zeros(count, np.int64), read, False)
    found = parts.reshape(-1)[: len(ALL)]
    assert read.tobytes() == parts.tobytes()
    expected = np.array([number_of(half) for half in ALL[~IS_NAN].tolist()], np.float32)
    assert found[~IS_NAN].tobytes() == expected.tobytes()
    wide = ALL[IS_NAN].astype(np.uint32)
    payload = (wide & 0x8000) << 16 | 0x7FC00000 | (wide & 0x3FF) << 13
    assert found[IS_NAN].view(np.uint32).tolist() == payload.tolist()
    quiet = np.where(IS_NAN, ALL | 0x200, ALL)
    np.testing.assert_array_equal(halves_of(found, width), quiet)


@pytest.mark.parametrize("width", [1, 3, 8, 17])
def test_numbers_are_rounded_to_the_nearest_half_and_ties_to_even(width: int) -> None:
    finite = np.array([number_of(half) for half in range(0x7C00)], np.float32)
    middle = (finite[:-1].astype(np.float64) + finite[1:]) / 2
    ties = middle.astype(np.float32)
    assert (ties == middle).all()
    most = np.float32(3.4e38)
    edges = [65504, 65519.99, 65519.996, 65520, 65536, most, np.inf, 2.0**-24, 2.0**-25, 1e-45, 0]
    near = [np.nextafter(ties, np.float32(to)) for to in (0, most)]
    above_the_least = np.nextafter(np.array([2.0**-25], np.float32), most)
    numbers = np.concatenate([ties, *near, np.array(edges, np.float32), above_the_least])
    numbers = np.concatenate([numbers, -numbers])
    expected = [half_of(number) for number in numbers.tolist()]
    np.testing.assert_array_equal(halves_of(numbers, width), expected)


def test_arbitrary_float32_numbers_are_rounded_alike_and_nan_keeps_its_payload() -> None:
    bits = np.random.default_rng(1).integers(0, 1 << 32, 60_000, dtype=np.uint32)
    bits[:4] = 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFC02000
    numbers = bits.view(np.float32)
    is_nan = np.isnan(numbers)
    nan = bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x3FF
    expected = [half_of(number) if number == number else 0 for number in numbers.tolist()]
    np.testing.assert_array_equal(halves_of(numbers, 16), np.where(is_nan, nan, expected))


def test_the_largest_magnitude_written_is_known() -> None:
    form = rows_with(slab_of(3), 3)
    number, tick = np.array([5], np.uint32), np.zeros(1, np.uint32)
    assert form.largest == 0.0
    for values, largest in (([1, -2.5, 0], 2.5), ([0.5, 0, 0], 2.5), ([0, -65504, 7], 65504.0)):
        form.scatter(number, np.array([[values]], np.float32), tick)
        assert form.largest == largest
    form.scatter(number, np.array([[[np.nan, 0, 0]]], np.float32), tick)
    assert form.largest == np.inf


def test_no_rows_are_no_work() -> None:
    form, none = rows_with(slab_of(3), 3), np.zeros(0, np.uint32)
    parts = np.zeros((1, 0, 3), np.float32)
    form.scatter(none, parts, none)
    form.gather(none, parts, none)
    assert form.largest == 0.0
