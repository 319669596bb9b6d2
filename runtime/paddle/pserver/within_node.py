# SPDX-License-Identifier: Apache-2.0
"""Gradients and values in memory that a trainer shares with servers of its node: nothing of them is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from paddle.errors import ConfigError
from paddle.pserver.arithmetic import is_looked_at_once
from paddle.pserver.layout import Array, Layout
from paddle.pserver.message import Message, Section
from paddle.pserver.placement import DenseShare


class SharedSlabs(Protocol):
    """What is shared with one server: see `LocalLink`."""

    gradient: Array

    def values(self, reply: Message) -> Array:
        """Return the slab that a reply speaks of."""


class _Home(NamedTuple):
    """Where the gradient of one part of a parameter lies in shared memory."""

    part: DenseShare
    array: Array


class WithinNode:
    """The servers whose memory this trainer shares, by index."""

    def __init__(self, layout: Layout, shared: Mapping[int, SharedSlabs]) -> None:
        self._layout, self._shared = layout, dict(shared)
        self._latest: dict[int, Array] = {}
        self._homes = {
            index: [
                _Home(part, slabs.gradient[part.start : part.stop]) for part in layout.shares[index].dense
            ]
            for index, slabs in self._shared.items()
        }

    def gradient(self, name: str) -> Array | None:
        """Return where a parameter's gradient lies in shared memory, (size,); None if it does not, as a whole."""
        for homes in self._homes.values():
            for part, array in homes:
                if part.parameter.name == name and array.size == part.parameter.size:
                    return array
        return None

    def value(self, name: str) -> Array | None:
        """Return the newest values of a parameter, (size,), read-only, as long as no other push is begun."""
        place = self._place(name)
        return None if place is None or place[0] not in self._latest else self._latest[place[0]][place[1]]

    def fill(self, index: int, flat: Mapping[str, Array]) -> Array:
        """Put gradients where server `index` reads them, if they do not lie there; those left out become 0.

        Large ones for the only server are not looked at: it does that where it adds them up, and changes nothing if
        one is strange. Among several others may have used their part by then.

        Raises:
            ConfigError: one is NaN or infinite.
        """
        slab = self._shared[index].gradient
        is_seen_there = len(self._layout.shares) == 1 and is_looked_at_once(slab.nbytes)
        for part, here in self._homes[index]:
            name = part.parameter.name
            gradient = flat.get(name)
            if gradient is None:
                here[...] = 0.0
                continue
            if gradient is not here and gradient.ctypes.data != here.ctypes.data:
                part.gather(gradient, slab)
            if not is_seen_there and not Section("", here).is_finite:
                raise ConfigError(f"gradient of parameter {name} is NaN or infinite; nothing was changed")
        return slab

    def take(self, index: int, reply: Message) -> Array:
        """Return the slab of values that the reply to a push in place speaks of."""
        self._latest[index] = self._shared[index].values(reply)
        return self._latest[index]

    def has(self, index: int) -> bool:
        """Return whether memory is shared with server `index`."""
        return index in self._shared

    def lose(self, index: int) -> None:
        """Forget a server that is not there any more; its arrays stay with whoever holds them."""
        self._shared.pop(index, None)
        self._homes.pop(index, None)
        self._latest.pop(index, None)

    def _place(self, name: str) -> tuple[int, slice] | None:
        size = self._layout.parameter(name).size
        for index in self._shared:
            for part in self._layout.shares[index].dense:
                if part.parameter.name == name and part.stop - part.start == size:
                    return index, slice(part.start, part.stop)
        return None
