# SPDX-License-Identifier: Apache-2.0
"""CRC-32 of large buffers: zlib's number, several times as fast where the processor multiplies polynomials.

Large buffers are folded to 16 bytes that have the same remainder, and zlib does the rest: see Gopal and others, "Fast
CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.
"""

from __future__ import annotations

import functools
import importlib
import platform
import zlib
from typing import Any

import numpy as np

# Below it loading compiled code costs more than it saves.
_COMPILED_FROM_BYTES = 1 << 20
_STRIDE = 64


def crc32(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Return the CRC-32 of what `value` is the CRC of, followed by `data`; runs without the interpreter's lock."""
    whole = len(data) - len(data) % _STRIDE
    kernels = _kernels() if whole >= _COMPILED_FROM_BYTES else None
    if kernels is None:
        return zlib.crc32(data, value)
    folded = np.empty(16, np.uint8)
    address = np.frombuffer(data, np.uint8).ctypes.data
    kernels.fold(np.uint64(address), whole // _STRIDE, np.uint32(value ^ 0xFFFFFFFF), folded)
    # What went before is in the folded bytes, so that zlib has to begin with a register of 0.
    return zlib.crc32(memoryview(data)[whole:], zlib.crc32(folded.data, 0xFFFFFFFF))


def prepare() -> None:
    """Load or compile what large buffers need, before somebody waits for it."""
    crc32(bytes(_COMPILED_FROM_BYTES))


@functools.cache
def _kernels() -> Any:
    """Return the module of compiled loops; None where they cannot run."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return None
    try:
        kernels: Any = importlib.import_module("paddle.pserver.durable.checkpoint.crc_kernels")
    except ImportError:
        return None
    return kernels if kernels.can_run() else None
