# SPDX-License-Identifier: Apache-2.0
"""Gradients and values in memory that a trainer shares with servers of its node: nothing of them is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from paddle.errors import ConfigError
from paddle.pserver.client.layout import Array, Layout
from paddle.pserver.store.dense_step import DenseThreads
from paddle.pserver.transports.transport import SharedSlabs
from paddle.pserver.wire.arithmetic import is_looked_at_once
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.placement import DenseShare

_PIECE = 1 << 18
"""Elements of a large array that are copied, and looked at while they are in the cache."""


class _Home(NamedTuple):
    """Where the gradient of one part of a parameter lies in shared memory."""

    part: DenseShare
    array: Array


class WithinNode:
    """The servers whose memory this trainer shares, by index."""

    def __init__(self, layout: Layout, shared: Mapping[int, SharedSlabs]) -> None:
        self._layout, self._shared = layout, dict(shared)
        self._latest: dict[int, Array] = {}
        self._threads = DenseThreads()
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
        look = len(self._layout.shares) > 1 or not is_looked_at_once(slab.nbytes)
        for part, here in self._homes[index]:
            name = part.parameter.name
            gradient = flat.get(name)
            if gradient is None:
                here[...] = 0.0
                continue
            is_here = gradient is here or gradient.ctypes.data == here.ctypes.data
            if here.size > _PIECE and gradient.size == here.size:
                is_fit = self._copy(here if is_here else gradient, here, look=look)
            else:
                if not is_here:
                    part.gather(gradient, slab)
                is_fit = not look or Section("", here).is_finite
            if not is_fit:
                raise ConfigError(f"gradient of parameter {name} is NaN or infinite; nothing was changed")
        return slab

    def take(self, index: int, reply: Message) -> Array:
        """Return the slab of values that the reply to a push or a look in place speaks of."""
        self._latest[index] = self._shared[index].values(reply)
        return self._latest[index]

    def scatter(self, index: int, slab: Array, views: Mapping[str, Array]) -> None:
        """Copy values of server `index` into whole parameters (size,); those left out stay."""
        for part in self._layout.shares[index].dense:
            view = views.get(part.parameter.name)
            if view is None:
                continue
            if view.size > _PIECE and view.size == part.stop - part.start:
                self._copy(slab[part.start : part.stop], view, look=False)
            else:
                part.scatter(slab, view)

    def has(self, index: int) -> bool:
        """Return whether memory is shared with server `index`."""
        return index in self._shared

    def lose(self, index: int) -> None:
        """Forget a server that is not there any more; its arrays stay with whoever holds them."""
        self._shared.pop(index, None)
        self._homes.pop(index, None)
        self._latest.pop(index, None)

    def _copy(self, source: Array, target: Array, *, look: bool) -> bool:
        """Copy a large array, if it is another, on several cores; return whether it is finite if that is asked."""
        if source is target and not look:
            return True

        def copy(worker: int, number: int) -> bool:
            piece = slice(number * _PIECE, (number + 1) * _PIECE)
            if source is not target:
                np.copyto(target[piece], source[piece])
            return not look or Section("", target[piece]).is_finite

        return all(self._threads.run(copy, -(-target.size // _PIECE)))

    def _place(self, name: str) -> tuple[int, slice] | None:
        size = self._layout.parameter(name).size
        for index in self._shared:
            for part in self._layout.shares[index].dense:
                if part.parameter.name == name and part.stop - part.start == size:
                    return index, slice(part.start, part.stop)
        return None
