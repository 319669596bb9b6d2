# SPDX-License-Identifier: Apache-2.0
"""A large array that is looked at while it arrives, as far as it came, while that lies in the nearest caches."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np

from paddle.pserver.wire.arithmetic import Findings, is_worth_loading, loops

_NONE = np.uint64(0)
_LOOPS = "arrival_kernel"


class Arrival:
    """One array. The plain form of it is to receive all, and then to `inspect` it."""

    def __init__(self, place: memoryview, kernels: Any) -> None:
        self._kernels = kernels
        self._array = np.frombuffer(place, np.uint8)
        self._looked, self._total, self._seen = 0, _NONE, _NONE

    @classmethod
    def begin(cls, place: memoryview) -> Arrival | None:
        """Return one for an array that belongs to `place`, or None where the plain form is better, or all there is."""
        kernels = None if len(place) % 8 else loops(_LOOPS, len(place))
        return None if kernels is None else cls(place, kernels)

    def receive(self, descriptor: int, got: int, behind: memoryview) -> tuple[int, int]:
        """Receive what is there, without waiting.

        Args:
            descriptor: of a socket that does not block.
            got: bytes that are here.
            behind: for what comes behind the array.

        Returns:
            Bytes that are here now; bytes in `behind`. If the array is not whole, nothing more came now, or the
            connection is over.
        """
        tail = np.frombuffer(behind, np.uint8)
        got, more, self._looked, total, seen = self._kernels.receive(
            descriptor, self._array, got, tail, self._looked, self._total, self._seen
        )
        self._total, self._seen = np.uint64(total), np.uint64(seen)
        return got, more

    def look(self, got: int) -> None:
        """Look at what something else received; `got`: bytes that are here."""
        if self._looked >= 0:
            self._looked, total, seen = self._kernels.look(
                self._array, got, self._looked, self._total, self._seen
            )
            self._total, self._seen = np.uint64(total), np.uint64(seen)

    @property
    def findings(self) -> Findings | None:
        """What was found, if all was looked at."""
        if self._looked != self._array.size // 8:
            return None
        return Findings(int(self._total), not self._seen)


def prepare(nbytes: int) -> None:
    """Load or compile what arrays of so many bytes need, before somebody waits for it."""
    memory = np.zeros(8, np.uint8)
    if is_worth_loading(nbytes) and (kernels := loops(_LOOPS, nbytes)) is not None:
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            kernels.receive(near.fileno(), memory, 0, memory, 0, _NONE, _NONE)
        kernels.look(memory, 0, 0, _NONE, _NONE)
