# SPDX-License-Identifier: Apache-2.0
"""Pieces that must be put aside before their arrays change: written from where they lie in time, or copied.

The thread that writes takes piece after piece from the end; nothing is copied for it. Whoever changes arrays does so
from the beginning, and just before it changes a piece that is left it gives a copy of it away. They meet in between:
nobody waits for more than the one piece that is being written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from paddle.pserver.durable.checkpoint.part import PartWriter
from paddle.pserver.durable.checkpoint.piece import Piece


class Copying:
    """Pieces on their way into a part. All methods but `write` are the owner's thread's."""

    def __init__(self, pieces: Iterable[Piece], give: Callable[[Piece], None], length: int) -> None:
        """Begin.

        Args:
            pieces: with views of the arrays that change; parameters in the order in which those change, and so the
                pieces of each.
            give: takes a piece; its arrays hold only during the call.
            length: elements of each piece, but the last of each parameter.
        """
        self._left: dict[str, dict[int, Piece]] = {}
        for piece in pieces:
            self._left.setdefault(piece.parameter, {})[piece.place["at"] // length] = piece
        self._give, self._length = give, length
        self._changed = threading.Condition()
        self._written: tuple[str, int] | None = (
            None  # what `write` has in hand: of what parameter the how many-th
        )

    @property
    def is_waiting(self) -> bool:
        """Whether there are pieces that nobody has begun with."""
        with self._changed:
            return bool(self._left)

    @property
    def is_over(self) -> bool:
        """Whether nobody needs the arrays any more."""
        with self._changed:
            return self._written is None and not self._left

    def write(self, writer: PartWriter) -> None:
        """Write all pieces that nobody else takes; in the part's thread."""
        while (nbytes := self._next_bytes()) is not None:
            # Whoever waits for the piece in our hands then waits for memory, not for the disk.
            writer.make_room(nbytes)
            with self._changed:
                taken = self._take_last()
                self._written = None if taken is None else taken[0]
            if taken is None:
                return
            try:
                writer.write(taken[1])
            finally:
                with self._changed:
                    self._written = None
                    self._changed.notify_all()

    def advance(self) -> None:
        """Give one away, if there is one."""
        with self._changed:
            taken = self._take_last()
        if taken is not None:
            self._give(taken[1])

    def finish(self, parameter: str, start: int, stop: int) -> None:
        """Return once nobody needs these elements: give away what is left, wait for what is being written."""
        for number in range(start // self._length, -(-stop // self._length)):
            with self._changed:
                piece = self._take(parameter, number)
                while piece is None and self._written == (parameter, number):
                    self._changed.wait()
            if piece is not None:
                self._give(piece)

    def cancel(self) -> None:
        """Give away no more."""
        with self._changed:
            self._left.clear()
            self._changed.wait_for(lambda: self._written is None)

    def _take(self, parameter: str, number: int) -> Piece | None:
        pieces = self._left.get(parameter)
        piece = pieces.pop(number, None) if pieces else None
        if piece is not None and not pieces:
            del self._left[parameter]
        return piece

    def _take_last(self) -> tuple[tuple[str, int], Piece] | None:
        if not self._left:
            return None
        parameter = next(reversed(self._left))
        number = next(reversed(self._left[parameter]))
        piece = self._take(parameter, number)
        assert piece is not None
        return (parameter, number), piece

    def _next_bytes(self) -> int | None:
        with self._changed:
            if not self._left:
                return None
            pieces = self._left[next(reversed(self._left))]
            return pieces[next(reversed(pieces))].nbytes
