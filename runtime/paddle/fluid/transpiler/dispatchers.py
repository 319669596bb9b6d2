# SPDX-License-Identifier: Apache-2.0
"""Which parameter server gets which slice."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol


class Named(Protocol):
    """What is dispatched."""

    name: str


class PSDispatcher(ABC):
    """Base of all dispatchers, also those of users."""

    def __init__(self, pserver_endpoints: Sequence[str]) -> None:
        self._eps = list(pserver_endpoints)
        self._step = 0

    @property
    def eps(self) -> list[str]:
        """The servers."""
        return self._eps

    def reset(self) -> None:
        """Begin with the first server again."""
        self._step = 0

    @abstractmethod
    def dispatch(self, varlist: Sequence[Named]) -> list[str]:
        """Return the server of each variable."""


class RoundRobin(PSDispatcher):
    """One after the other, going on where the last call ended."""

    def dispatch(self, varlist: Sequence[Named]) -> list[str]:
        """See `PSDispatcher`."""
        chosen = []
        for _ in varlist:
            chosen.append(self._eps[self._step])
            self._step = (self._step + 1) % len(self._eps)
        return chosen


class HashName(PSDispatcher):
    """By a hash of the parameter slice's name, the same in every process and for its gradient."""

    def dispatch(self, varlist: Sequence[Named]) -> list[str]:
        """See `PSDispatcher`."""
        names = [re.sub(r"@GRAD|\.trainer_\d+$", "", variable.name) for variable in varlist]
        return [self._eps[_hash(name) % len(self._eps)] for name in names]


def _hash(name: str) -> int:
    # No CRC: names that differ in a last digit, as those of slices do, have CRCs of the same parity.
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
