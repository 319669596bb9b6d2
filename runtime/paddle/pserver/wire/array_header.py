# SPDX-License-Identifier: Apache-2.0
"""What a message's header says of its arrays: written, and read with the arrays themselves; see `message`.

Reading trusts nothing: names, dtypes and sizes are checked before any array is made, and arrays are views.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paddle.errors import WireError

DTYPES = tuple(np.dtype(code) for code in ("<f4", "<i8", "u1", "<f8", "<i4", "<f2", "?"))

_SECTION = struct.Struct("<BBBQ")
_SHAPES = [struct.Struct(f"<{ndim}Q") for ndim in range(9)]  # by number of dimensions
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


class Described(NamedTuple):
    """An array with what a header says of it."""

    name: str
    array: npt.NDArray[Any]
    checksum: int


def description(name: str, array: npt.NDArray[Any], checksum: int) -> bytes:
    """Return what a header says of an array."""
    text, ndim = name.encode(), array.ndim
    start = _SECTION.pack(len(text), _CODES[array.dtype], ndim, checksum)
    return start + text + _SHAPES[ndim].pack(*array.shape)


def read_arrays(
    header: bytes, at: int, frames: Iterable[bytes | memoryview], max_bytes: int
) -> list[Described]:
    """Return a header's arrays, of at most `max_bytes` each; the first one's description is at `at`.

    Raises:
        WireError: the descriptions cannot be read, or frames differ from them.
    """
    found = []
    for frame in frames:
        try:
            name_bytes, code, ndim, checksum = _SECTION.unpack_from(header, at)
            at += _SECTION.size
            name = header[at : at + name_bytes].decode()
            at += name_bytes
            if ndim >= len(_SHAPES) or code >= len(DTYPES):
                raise WireError(f"section {name!r}: unknown dtype {code} or {ndim} dimensions")
            shape = _SHAPES[ndim].unpack_from(header, at)
            at += 8 * ndim
        except (struct.error, UnicodeDecodeError) as error:
            raise WireError(f"a section's description is damaged: {error}") from None
        dtype = DTYPES[code]
        expected = dtype.itemsize
        for dim in shape:
            expected *= dim
        if expected != len(frame) or expected > max_bytes:
            raise WireError(
                f"section {name!r}: {shape} {dtype} is {expected} bytes, the frame has {len(frame)}"
            )
        try:
            array = np.frombuffer(frame, dtype)
            found.append(Described(name, array if ndim == 1 else array.reshape(shape), checksum))
        except ValueError as error:  # no bytes, yet a dimension beyond every limit
            raise WireError(f"section {name!r}: {shape}: {error}") from None
    if at != len(header):
        raise WireError(f"header: expected {at} bytes, got {len(header)}")
    return found
