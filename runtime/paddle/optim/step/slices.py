# SPDX-License-Identifier: Apache-2.0
"""Walks through large arrays a piece at a time, so that a rule's intermediate results stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

_SLICE = 1 << 14


def pieces(*arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Yield views of the same part of each array; of the whole, if they are small or not contiguous host arrays."""
    first = arrays[0]
    if first.size <= _SLICE or any(
        type(array) is not np.ndarray or not array.flags.c_contiguous for array in arrays
    ):
        yield arrays
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, first.size, _SLICE):
        yield tuple(array[start : start + _SLICE] for array in flat)
