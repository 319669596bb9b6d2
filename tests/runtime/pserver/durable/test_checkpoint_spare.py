# SPDX-License-Identifier: Apache-2.0
"""Memory for copies: found before, used again, and never while somebody has what lies in it."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from paddle.pserver.durable.checkpoint.spare import SpareMemory

DEADLINE_S = 20.0
LARGE = 2 << 20  # elements


def prepared(nbytes: int) -> SpareMemory:
    spare = SpareMemory()
    spare.prepare(nbytes)
    for thread in threading.enumerate():
        if thread.name == "checkpoint-memory":
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
    return spare


def place_of(array: np.ndarray) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("size", [1, 1000, LARGE - 1, LARGE, LARGE + 1])
@pytest.mark.parametrize("nbytes", [0, 64 << 20])
def test_a_copy_is_equal_and_apart_whatever_its_size_and_whether_there_is_memory(
    size: int, nbytes: int
) -> None:
    spare = prepared(nbytes)
    array = np.arange(size, dtype=np.float32)
    copy = spare.copy(array)
    array += 1
    assert np.array_equal(copy, np.arange(size, dtype=np.float32))
    assert copy.dtype == array.dtype
    assert copy.shape == array.shape


def test_memory_is_used_again_once_a_copy_is_gone_and_not_before() -> None:
    spare = prepared(4 * LARGE)  # one copy's
    array = np.ones(LARGE, np.float32)
    first = spare.copy(array)
    place = place_of(first)
    second = spare.copy(array + 1)
    assert not np.may_share_memory(first, second)
    assert first.max() == 1.0
    del first
    gc.collect()
    assert place_of(spare.copy(array)) == place
