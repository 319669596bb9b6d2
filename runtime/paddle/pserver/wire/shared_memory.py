# SPDX-License-Identifier: Apache-2.0
"""Arrays in unnamed memory that processes on one node share by descriptor, released with the last process.

    memfd:  float32 0 | float32 1 | ... | float32 size - 1        4 * size bytes, no header, sealed against resizing

The owner maps the memory for reading and writing, other processes only for reading. This module ignores the contents;
messages determine when they can be read: see `transports.shm`. If the memory could shrink, a process that reads past
its end would be killed (SIGBUS), so the seals are checked before mapping.
"""

from __future__ import annotations

import mmap
import os
import weakref

import numpy as np
import numpy.typing as npt

from paddle.errors import WireError
from paddle_node.linux import descriptors

Floats = npt.NDArray[np.float32]


class SharedArray:
    """An array of float32 zeros in memory that other processes can map.

    Attributes:
        array: (size,) float32.
        descriptor: descriptor of the memory; closed with this object.
    """

    def __init__(self, size: int) -> None:
        """Allocate the array. Raises MemoryError if memory is exhausted."""
        try:
            self.descriptor = descriptors.memory("paddle-slab", 4 * size, is_fixed=True)
            weakref.finalize(self, os.close, self.descriptor)
            self.array = _map(self.descriptor, size, writable=True)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"cannot allocate {4 * size} bytes of shared memory: {error}") from error


def mapped(descriptor: int, size: int | None = None) -> Floats:
    """Return another process's `SharedArray` of `size` elements, read-only; the descriptor can be closed afterwards.

    Args:
        size: the number of elements; None means the whole array.

    Raises:
        WireError: the memory is not a `SharedArray`, or its owner could shrink it and thereby kill its readers.
    """
    try:
        if not descriptors.is_fixed(descriptor):
            raise WireError("the owner can still resize the shared memory")
        nbytes = os.fstat(descriptor).st_size
        size = nbytes // 4 if size is None else size
        if nbytes != 4 * size:
            raise WireError(f"shared memory: expected {4 * size} bytes, got {nbytes}")
        return _map(descriptor, size, writable=False)
    except OSError as error:
        raise WireError(f"cannot map shared memory: {error.strerror}") from None


def _map(descriptor: int, size: int, *, writable: bool) -> Floats:
    if not size:
        return np.zeros(0, np.float32)
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return np.frombuffer(mmap.mmap(descriptor, 4 * size, mmap.MAP_SHARED, access), np.float32)
