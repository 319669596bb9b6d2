# SPDX-License-Identifier: Apache-2.0
"""Converts rows and their gradients to 16 bits on the wire (float16 or bfloat16); both ends compute in float32.

bfloat16 is the upper half of a float32, rounded to the nearest, ties to even; numpy has no such dtype, so it is sent as
uint16. A number beyond the range of the dtype is clipped to the largest number of the same sign, so that gradients stay
finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, WireError

WIRE_DTYPES = ("float32", "float16", "bfloat16")
"""The wire dtypes of rows; a message names one by its index."""

_FLOAT16, _BFLOAT16 = np.dtype("<f2"), np.dtype("<u2")
_INFINITE = np.uint32(0x7F80)
_LARGEST = np.float32(np.finfo(np.float16).max)


def number_of(name: str) -> int:
    """Return the index of a wire dtype in WIRE_DTYPES. Raises ConfigError if the name is unknown."""
    if name not in WIRE_DTYPES:
        raise ConfigError(f"wire_dtype: expected one of {', '.join(WIRE_DTYPES)}, got {name!r}")
    return WIRE_DTYPES.index(name)


def check_number(number: int) -> int:
    """Check the index of a wire dtype from the wire and return it. Raises WireError if the index is invalid."""
    if number >= len(WIRE_DTYPES):
        raise WireError(f"rows are requested in format {number}: expected 0 to {len(WIRE_DTYPES) - 1}")
    return number


def packed(rows: npt.NDArray[np.float32], number: int) -> npt.NDArray[Any]:
    """Return rows of any shape in the wire dtype with this index; NaN and infinity are preserved."""
    if WIRE_DTYPES[number] == "float16":
        is_infinite = np.isinf(rows)
        found = np.clip(rows, -_LARGEST, _LARGEST)
        return (
            np.where(is_infinite, rows, found).astype(_FLOAT16)
            if is_infinite.any()
            else found.astype(_FLOAT16)
        )
    if WIRE_DTYPES[number] == "bfloat16":
        bits = np.ascontiguousarray(rows).view(np.uint32)
        near = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        upper = bits >> np.uint32(16)
        cut = np.where(np.isnan(rows), upper | np.uint32(0x40), upper)  # a NaN must not become infinite
        is_whole = (
            near & np.uint32(0x7FFF)
        ) < _INFINITE  # else it was infinite or NaN, or would become infinite
        return np.where(is_whole & ~np.isnan(rows), near, cut).astype(_BFLOAT16)
    return rows


def widened(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the output of `packed` as float32; leave other dtypes unchanged."""
    if rows.dtype == _FLOAT16:
        return rows.astype(np.float32)
    if rows.dtype == _BFLOAT16:
        return (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return rows
