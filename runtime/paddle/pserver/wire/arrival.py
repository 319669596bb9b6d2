# SPDX-License-Identifier: Apache-2.0
"""Large arrays while they arrive: inspected block by block in the nearest caches, in memory that is reused."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from paddle.pserver.wire.arithmetic import Findings, loops

_LINE = 64
_KEPT = 4


class _Arrival(ctypes.Structure):
    """`struct arrival` of `dense.c`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("got", "more", "looked")),
        *((name, ctypes.c_uint64) for name in ("total", "seen")),
    )


class Arrival:
    """One array. The plain form of it is to receive all, and then to `inspect` it."""

    def __init__(self, place: memoryview, kernels: Any) -> None:
        self._kernels = kernels
        self._array = np.frombuffer(place, np.uint8)
        self._start = self._array.ctypes.data
        self._state = _Arrival()
        self._at = ctypes.byref(self._state)

    @classmethod
    def begin(cls, place: memoryview) -> Arrival | None:
        """Return one for an array that belongs to `place`, or None where the plain form is better, or all there is."""
        kernels = None if len(place) % 8 else loops(len(place))
        return None if kernels is None else cls(place, kernels)

    def receive(self, descriptor: int, got: int, behind: memoryview) -> tuple[int, int]:
        """Receive the available bytes, without waiting.

        Args:
            descriptor: of a socket that does not block.
            got: bytes that are here.
            behind: for what comes behind the array.

        Returns:
            Bytes that are here now; bytes in `behind`. If the array is not whole, nothing more came now, or the
            connection is over.
        """
        self._state.got = got
        tail = np.frombuffer(behind, np.uint8)
        self._kernels.receive(
            descriptor, self._start, self._array.size, tail.ctypes.data, tail.size, self._at
        )
        return self._state.got, self._state.more

    def look(self, got: int) -> None:
        """Look at what something else received; `got`: bytes that are here."""
        self._state.got = got
        self._kernels.look(self._start, self._at)

    @property
    def findings(self) -> Findings | None:
        """What was found, if all was looked at."""
        state = self._state
        return Findings(state.total, not state.seen) if 8 * state.looked == self._array.size else None


class ReusedMemory:
    """Memory for large arrays, reused when nothing refers to what lay in it: it is in the caches then, and mapped.

    A few pieces of one reader. Not thread-safe; what was taken may be dropped in any thread.
    """

    def __init__(self) -> None:
        self._kept: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []

    def take(self, length: int) -> memoryview:
        """Return `length` bytes that begin with a line of the cache, so that compiled loops take none twice."""
        for memory in self._kept:
            if memory.size == length and sys.getrefcount(memory) == _FREE:
                return memory.data
        whole = np.empty(length + _LINE, np.uint8)
        start = -whole.ctypes.data % _LINE
        memory = whole[start : start + length]
        self._kept = [memory, *self._kept[: _KEPT - 1]]
        return memory.data


def _references_when_free() -> int:
    """Return what the question of `take` is answered for memory that nobody refers to, -1 if that cannot be told.

    How many references the interpreter holds itself differs between its versions.
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
