# SPDX-License-Identifier: Apache-2.0
"""Pieces that are copied before their arrays change: by a thread as long as there is time, then by who changes them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from paddle.pserver.checkpoint.piece import Piece


class Copying:
    """Pieces that must be given away before anything changes their arrays. All methods are the owner's thread's."""

    def __init__(self, pieces: Iterable[Piece], give: Callable[[Piece], None], *, aside: bool) -> None:
        """Begin.

        Args:
            pieces: with views of the arrays that change.
            give: takes a piece; its arrays hold only during the call.
            aside: whether a thread may begin at once, so that `give` is called by two.
        """
        self._pieces, self._give = deque(pieces), give
        self._thread: threading.Thread | None = None
        if aside and self._pieces:
            self._thread = threading.Thread(target=self._give_rest, name="checkpoint-copy", daemon=True)
            self._thread.start()

    @property
    def is_waiting(self) -> bool:
        """Whether there are pieces that nobody has begun with."""
        return bool(self._pieces)

    @property
    def is_over(self) -> bool:
        """Whether all were given away."""
        return not self._pieces and (self._thread is None or not self._thread.is_alive())

    def advance(self) -> None:
        """Give one away, if there is one."""
        try:
            piece = self._pieces.popleft()
        except IndexError:
            return
        self._give(piece)

    def finish(self) -> None:
        """Give away all; wait for the one that the thread has."""
        self._give_rest()
        if self._thread is not None:
            self._thread.join()

    def cancel(self) -> None:
        """Give away no more."""
        self._pieces.clear()
        self.finish()

    def _give_rest(self) -> None:
        while self._pieces:
            self.advance()
