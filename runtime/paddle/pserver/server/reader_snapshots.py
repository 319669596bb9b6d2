# SPDX-License-Identifier: Apache-2.0
"""Dense values of one moment for readers, who take them in parts while training goes on.

What fits into one part is copied for each answer. Of a larger slab there are at most two copies, which all readers
share: the newest one, and an older one that somebody is still reading. Copying takes at most a tenth of the time;
until another copy may be made, readers begin with the newest one there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from paddle.errors import WireError
from paddle.pserver.store.gradient import Slab
from paddle.pserver.store.store import Store
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.reader_protocol import READ_PART
from paddle.pserver.wire.verbs import Ok, View

_COPIES = 2
_REST = 9.0  # times what copying took
_HOLD_S = 120.0  # then a copy goes even if somebody is in the middle of it, who must begin again
_UNREAD_S = 5.0


@dataclass(slots=True)
class _Copy:
    """All dense values after batch `version`; `reading`: addresses of those who are in the middle of it."""

    version: int
    slab: Slab
    made_at: float
    read_at: float
    sections: dict[int, Section] = field(default_factory=dict)
    reading: set[bytes] = field(default_factory=set)

    def part(self, start: int) -> Section:
        """Return the part from `start` on; its checksum is computed once for all readers."""
        if start not in self.sections:
            self.sections[start] = Section("", self.slab[start : start + READ_PART])
        return self.sections[start]


class Moments:
    """The copies of one store. Not thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._copies: list[_Copy] = []
        self._next_at = 0.0

    def answer(self, store: Store, address: bytes, message: Message) -> Message:
        """Return the answer to a reader's VIEW, without a section if that moment is gone: the reader must begin again.

        Raises:
            WireError: there is no such part.
        """
        (start, version), size = message.expect(View), store.slab.size
        if start % READ_PART or start >= max(size, 1):
            raise WireError(
                f"values from element {start} on: expected a multiple of {READ_PART} below {size}"
            )
        if size <= READ_PART:
            return Message(Ok(store.version), sections=(Section("", store.dense()),))
        if not start:
            self.lose(address)
            copy: _Copy | None = self._newest(store)
        else:
            copy = next((each for each in self._copies if each.version == version), None)
        if copy is None:
            return Message(Ok(store.version))
        copy.read_at = self._clock()
        copy.reading.add(address)
        if start + READ_PART >= size:
            copy.reading.discard(address)
        return Message(Ok(copy.version), sections=(copy.part(start),))

    def lose(self, address: bytes) -> None:
        """Forget a reader."""
        for copy in self._copies:
            copy.reading.discard(address)

    def tidy(self) -> None:
        """Let go of copies that nobody has read for a while."""
        now = self._clock()
        self._copies = [
            copy for copy in self._copies if now - copy.read_at < (_HOLD_S if copy.reading else _UNREAD_S)
        ]

    def _newest(self, store: Store) -> _Copy:
        now = self._clock()
        if self._copies:
            latest = self._copies[-1]
            if latest.version == store.version or now < self._next_at:
                return latest
            if len(self._copies) == _COPIES:
                over = [copy for copy in self._copies if not copy.reading or now - copy.made_at > _HOLD_S]
                if not over:
                    return latest
                self._copies.remove(over[0])
        slab = store.dense()
        done = self._clock()
        self._next_at = done + _REST * (done - now)
        self._copies.append(_Copy(store.version, slab, done, done))
        return self._copies[-1]
