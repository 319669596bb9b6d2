# SPDX-License-Identifier: Apache-2.0
"""Hashes of rows of ids: published numbers of XXH64, and its definition word by word in Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runtime.ops.run_op import run_op

_ALL = (1 << 64) - 1
_PRIMES = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def turned(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _ALL


def xxh64(data: bytes, seed: int) -> int:
    one, two, three, four, five = _PRIMES

    def step(lane: int, word: int) -> int:
        return turned(lane + word * two & _ALL, 31) * one & _ALL

    rest = data
    if len(data) >= 32:
        lanes = [seed + one + two & _ALL, seed + two & _ALL, seed, seed - one & _ALL]
        while len(rest) >= 32:
            for at in range(4):
                lanes[at] = step(lanes[at], int.from_bytes(rest[8 * at : 8 * at + 8], "little"))
            rest = rest[32:]
        found = sum(turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
        for lane in lanes:
            found = ((found ^ step(0, lane)) * one + four) & _ALL
    else:
        found = seed + five & _ALL
    found = found + len(data) & _ALL
    while len(rest) >= 8:
        found = (turned(found ^ step(0, int.from_bytes(rest[:8], "little")), 27) * one + four) & _ALL
        rest = rest[8:]
    if rest:
        found = (turned(found ^ int.from_bytes(rest, "little") * one & _ALL, 23) * two + three) & _ALL
    found = (found ^ found >> 33) * two & _ALL
    found = (found ^ found >> 29) * three & _ALL
    return found ^ found >> 32


def test_hashes_are_the_published_ones() -> None:
    ids = np.array([[5], [8], [9], [0], [1], [7], [6]], "int32")  # numbers that a test of the original has
    (out,) = run_op("hash", {"X": ids}, {"num_hash": 2, "mod_by": 10000})
    known = [[3481, 7475], [1719, 5986], [8473, 694], [4372, 9456], [6897, 3218], [9038, 7951]]
    np.testing.assert_array_equal(out[[0, 1, 2, 3, 4, 5], :, 0], known)
    (wide,) = run_op("hash", {"X": np.array([[1], [2**32 + 1]])}, {"num_hash": 2, "mod_by": 10000})
    assert wide.ravel().tolist() == [1269, 9609, 3868, 7268]
    (far,) = run_op("hash", {"X": np.array([[10], [5]])}, {"num_hash": 2, "mod_by": 2**32})
    assert far.ravel().tolist() == [1204014882, 393011615, 3586283837, 2814821595]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 9, 17])
def test_rows_of_any_width_have_the_hash_of_their_bytes(dtype: str, width: int) -> None:
    ids = np.random.default_rng(width).integers(-(1 << 31), 1 << 31, (6, width)).astype(dtype)
    (out,) = run_op("hash", {"X": ids}, {"num_hash": 3, "mod_by": 10**9 + 7})
    expected: Any = [[[xxh64(row.tobytes(), seed) % (10**9 + 7)] for seed in range(3)] for row in ids]
    assert out.dtype == np.int64
    np.testing.assert_array_equal(out, expected)


def test_no_rows_have_no_hashes() -> None:
    (out,) = run_op("hash", {"X": np.zeros((0, 2), "int64")}, {"num_hash": 2})
    assert out.shape == (0, 2, 1)
