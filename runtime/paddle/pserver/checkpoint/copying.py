# SPDX-License-Identifier: Apache-2.0
"""Pieces that must be written before their arrays change: from where they lie while there is time, then from copies.

The thread that writes takes piece after piece; nothing is copied for it. Whoever is about to change an array waits
while that is quicker than copying would be; then it takes the pieces that are left and gives copies of them away.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from paddle.pserver.checkpoint.output import ROOM
from paddle.pserver.checkpoint.part import PartWriter
from paddle.pserver.checkpoint.piece import Piece

# Of memory that has to be found first: slower than this is slower than copying.
_WORTH_WAITING_BYTES_S = 1e9


class Copying:
    """Pieces on their way into a part. All methods but `write` are the owner's thread's."""

    def __init__(self, pieces: Iterable[Piece], give: Callable[[Piece], None], *, has_writer: bool) -> None:
        """Begin.

        Args:
            pieces: with views of the arrays that change; parameters in the order in which those change.
            give: takes a piece; its arrays hold only during the call.
            has_writer: whether a thread will `write`.
        """
        self._is_worth_waiting = has_writer
        self._left: dict[str, deque[Piece]] = {}
        for piece in pieces:
            self._left.setdefault(piece.parameter, deque()).append(piece)
        self._give = give
        self._changed = threading.Condition()
        self._written: str | None = None  # of what parameter `write` has a piece in hand

    @property
    def is_waiting(self) -> bool:
        """Whether there are pieces that nobody has begun with."""
        with self._changed:
            return any(self._left.values())

    @property
    def is_over(self) -> bool:
        """Whether nobody needs the arrays any more."""
        with self._changed:
            return self._written is None and not any(self._left.values())

    def write(self, writer: PartWriter) -> None:
        """Write all pieces that nobody else takes; in the part's thread."""
        while (nbytes := self._next_bytes()) is not None:
            # Whoever waits for the piece in our hands then waits for memory, not for the disk.
            writer.make_room(min(nbytes, ROOM))
            with self._changed:
                piece = self._take(None)
                self._written = None if piece is None else piece.parameter
            if piece is None:
                return
            try:
                writer.write(piece)
            finally:
                with self._changed:
                    self._written = None
                    self._changed.notify_all()

    def advance(self) -> None:
        """Give one away, if there is one."""
        with self._changed:
            piece = self._take(None)
        if piece is not None:
            self._give(piece)

    def finish(self, parameter: str | None = None) -> None:
        """Return once nobody needs one parameter, or all of them: wait for the writer, give away what is left."""
        self._wait_while_worth_it(parameter)
        while True:
            with self._changed:
                piece = self._take(parameter)
            if piece is None:
                break
            self._give(piece)
        with self._changed:
            self._changed.wait_for(lambda: self._written is None or parameter not in (None, self._written))

    def cancel(self) -> None:
        """Give away no more."""
        with self._changed:
            self._left.clear()
        self.finish()

    def _wait_while_worth_it(self, parameter: str | None) -> None:
        if not self._is_worth_waiting:
            return
        with self._changed:
            names = list(self._left) if parameter is None else [parameter]
            left = [self._left[name] for name in names if name in self._left]
            limit_s = sum(piece.nbytes for pieces in left for piece in pieces) / _WORTH_WAITING_BYTES_S
            # once it has been too slow, it is not asked again
            self._is_worth_waiting = self._changed.wait_for(lambda: not any(left), limit_s)

    def _take(self, parameter: str | None) -> Piece | None:
        for name, pieces in self._left.items():
            if pieces and parameter in (None, name):
                return pieces.popleft()
        return None

    def _next_bytes(self) -> int | None:
        with self._changed:
            return next((pieces[0].nbytes for pieces in self._left.values() if pieces), None)
