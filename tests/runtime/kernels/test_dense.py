# SPDX-License-Identifier: Apache-2.0
"""The loops of dense.c and their plain forms: the same bits, at every speed level and for every size."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from paddle.kernels import library
from paddle.pserver.wire import arithmetic

SIZES = [0, 1, 2, 3, 31, 4095, 4096, 4097, 8191, 70_001]
SPECIAL = [np.nan, np.inf, -np.inf, np.finfo(np.float32).max, -0.0, 1e-45]
needs_library = pytest.mark.skipif(not library.level(), reason=library.reason())


def floats(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


@needs_library
@pytest.mark.parametrize("level", library.levels())
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("special", [None, *SPECIAL])
def test_inspection_agrees_at_any_address(level: int, size: int, special: float | None) -> None:
    array = floats(size, size)
    if special is not None:
        array[size // 2 :: 1000] = special
    for offset in (0, 1, 4):
        memory = np.zeros(offset + array.nbytes, np.uint8)
        memory[offset:] = array.view(np.uint8)
        frame, words = memory[offset:].data, len(memory[offset:]) // 8
        total, strange = ctypes.c_uint64(), ctypes.c_uint64()
        start = memory[offset:].ctypes.data
        loops = arithmetic.KERNELS.at_level(level)
        loops.inspect(start, words, ctypes.byref(total), ctypes.byref(strange))
        wanted = arithmetic.inspect_plainly(frame[: 8 * words])
        assert (total.value, not strange.value) == (wanted.checksum, wanted.is_finite)


@needs_library
@pytest.mark.parametrize("level", library.levels())
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("special", [None, *SPECIAL])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_descent_agrees(level: int, size: int, special: float | None, count: int) -> None:
    w, g, h = (floats(size + seed, size) for seed in range(3))
    if special is not None:
        g[size // 2 :: 1000] = special
    out, plain, scratch = (np.empty_like(w) for _ in range(3))
    eta, total = 0.0371, ctypes.c_uint64()
    where = [each.ctypes.data for each in (w, g, h, out)]
    loops = arithmetic.KERNELS.at_level(level)
    strange = loops.descend(
        where[0], where[1], where[2] if count > 1 else None, eta, where[3], size, ctypes.byref(total)
    )
    finite = arithmetic.descend_plainly(w, [g, h][:count], eta, plain, scratch, check=True)
    assert strange != finite
    assert same_bits(out, plain)
    assert total.value == arithmetic.inspect_plainly(plain[: size // 2 * 2].tobytes()).checksum
