# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over dense blocks, and their plain forms: the same bits."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from paddle.pserver.wire import arithmetic
from paddle.pserver.wire.message import CHUNK, Section


@pytest.mark.parametrize("count", [1, 2, 5])
def test_compiled_and_plain_descent_agree_bit_for_bit(count: int) -> None:
    rng = np.random.default_rng(3)
    size = CHUNK + 3
    w, *gradients = (rng.standard_normal(size).astype(np.float32) for _ in range(count + 1))
    compiled, plain, scratch = np.empty_like(w), np.empty_like(w), np.empty_like(w)
    checksum = arithmetic.descend(w, gradients, 0.0371, compiled, scratch).checksum
    arithmetic.descend_plainly(w, gradients, 0.0371, plain, scratch)
    assert np.array_equal(compiled.view(np.uint32), plain.view(np.uint32))
    assert checksum in (None, arithmetic.inspect_plainly(compiled.data.cast("B")).checksum)


@pytest.mark.parametrize("strange", [None, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1, -1])
@pytest.mark.parametrize("size", [6, 7, 1024, CHUNK + 1])
def test_compiled_and_plain_look_agree(strange: float | None, at: int, size: int) -> None:
    array = np.random.default_rng(4).standard_normal(size).astype(np.float32)
    array[5] = np.finfo(np.float32).max
    if strange is not None:
        array[at] = strange
    frame = array.data.cast("B")
    assert arithmetic.inspect(frame) == arithmetic.inspect_plainly(frame)
    assert arithmetic.inspect(frame).is_finite is (strange is None)
    assert arithmetic.is_small_finite(array) is Section("", array).is_finite is (strange is None)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.float16, np.bool_])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (1,), (7,), (8,), (5, 3), (1 << 17,), ((1 << 17) + 1,)])
def test_arrays_and_their_bytes_have_the_same_checksum_at_every_address(
    dtype: type, shape: tuple[int, ...]
) -> None:
    array: npt.NDArray[Any] = np.random.default_rng(5).integers(0, 256, shape).astype(dtype)
    expected = arithmetic.inspect_plainly(array.tobytes()).checksum
    assert arithmetic.inspect(array.tobytes()).checksum == expected
    is_small = array.nbytes < arithmetic.SMALL_BYTES
    assert Section("", array).checksum == (zlib.crc32(array.tobytes()) if is_small else expected)
    for start in (0, 1, 4):
        memory = bytearray(start) + array.tobytes()
        for frame in (memoryview(memory)[start:], memoryview(bytes(memory))[start:]):
            assert arithmetic.inspect(frame).checksum == expected
