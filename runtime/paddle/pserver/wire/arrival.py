# SPDX-License-Identifier: Apache-2.0
"""Receives large arrays, inspecting each block while it is in the cache, into memory that is reused."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from paddle.pserver.wire.arithmetic import Findings, address_of, loops

_LINE = 64
_KEPT = 4


class _Arrival(ctypes.Structure):
    """`struct arrival` of `dense.c`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("got", "more", "looked")),
        *((name, ctypes.c_uint64) for name in ("total", "seen")),
    )


class Arrival:
    """An array that is being received and inspected on arrival.

    The plain form receives everything, then calls `inspect`.
    """

    def __init__(self, place: memoryview, kernels: Any) -> None:
        self._kernels, self._place = kernels, place
        self._start, self._size = address_of(place), len(place)
        self._state = _Arrival()
        self._at = ctypes.byref(self._state)

    @classmethod
    def begin(cls, place: memoryview) -> Arrival | None:
        """Return an `Arrival` that receives an array into `place`, or None if the plain form must be used."""
        kernels = None if len(place) % 8 else loops(len(place))
        return None if kernels is None else cls(place, kernels)

    def receive(self, descriptor: int, got: int, behind: memoryview) -> tuple[int, int]:
        """Receive the available bytes without waiting.

        Args:
            descriptor: descriptor of a non-blocking socket.
            got: number of bytes received so far.
            behind: buffer for the bytes after the array.

        Returns:
            Total number of bytes received; number of bytes in `behind`. If the array is incomplete, no more bytes were
            available, or the connection was closed.
        """
        self._state.got = got
        tail = address_of(behind)
        self._kernels.receive(descriptor, self._start, self._size, tail, len(behind), self._at)
        return self._state.got, self._state.more

    def inspect_received(self, got: int) -> None:
        """Inspect bytes that were received by other means; `got` is the number of bytes received so far."""
        self._state.got = got
        self._kernels.look(self._start, self._at)

    @property
    def findings(self) -> Findings | None:
        """The checksum and finiteness of the array, or None until the whole array has been inspected."""
        state = self._state
        return Findings(state.total, not state.seen) if 8 * state.looked == self._size else None


class ReusedMemory:
    """A pool of memory for large arrays, which is reused when the old contents are no longer referenced.

    It belongs to one reader and holds several pieces. Not thread-safe, but any thread can drop messages that use the
    memory.
    """

    def __init__(self) -> None:
        self._kept: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []

    def take(self, length: int) -> memoryview:
        """Return `length` bytes aligned to a cache line, so that compiled loops touch no line twice."""
        for memory in self._kept:
            if memory.size == length and sys.getrefcount(memory) == _FREE:
                return memory.data
        whole = np.empty(length + _LINE, np.uint8)
        start = -whole.ctypes.data % _LINE
        memory = whole[start : start + length]
        self._kept = [memory, *self._kept[: _KEPT - 1]]
        return memory.data


def _references_when_free() -> int:
    """Return the reference count that `take` sees for unused memory, -1 if it cannot be determined.

    The number of references that the interpreter itself holds differs between its versions.
    """
    kept = [np.empty(1, np.uint8)]
    view, counts = None, []
    for _ in range(2):
        for memory in kept:
            counts.append(sys.getrefcount(memory))
        view = kept[0].data
    del view
    free, used = counts
    return free if free < used else -1


_FREE = _references_when_free()
