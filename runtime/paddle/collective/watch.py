# SPDX-License-Identifier: Apache-2.0
"""Watch: waiting that ends when another rank is lost, has left or is late; every wait of a group goes through it.

Ranks are connected with rank 0 for news alone. Whoever fails says why before it closes; rank 0 passes that on, so
that all name the rank that failed first and not the one that told them. A connection that breaks without a word
is a rank that was lost.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Mapping, Sequence
from typing import Any

from paddle.collective.errors import CollectiveError, PeerDiffers, PeerLate, PeerLost
from paddle.collective.stream import Stream
from paddle.errors import WireError

_KINDS = {"lost": PeerLost, "differs": PeerDiffers, "late": PeerLate}
_TELL_S = 2.0
_GRACE_S = 3.0  # for news of who failed first


class Watch:
    """The news of one rank. Not thread-safe.

    Attributes:
        left: ranks that left in peace, and how many operations each had done.
        number: the operation that this rank is at.
    """

    def __init__(
        self, rank: int, links: Mapping[int, Stream], endpoints: Sequence[str], timeout_s: float
    ) -> None:
        self.rank, self._endpoints, self._timeout_s = rank, endpoints, timeout_s
        self._links = dict(links)
        self.left: dict[int, int] = {}
        self.number = 0
        self._deadline = 0.0

    def begin(self, number: int) -> None:
        """Give the next operation all the time there is."""
        self.number = number
        self._deadline = time.monotonic() + self._timeout_s

    def wait(self, descriptors: Sequence[tuple[int, int]], waits_for: Sequence[int]) -> None:
        """Wait until one of (descriptor, events) is ready.

        Args:
            waits_for: the ranks that must do something first, for messages.

        Raises:
            CollectiveError: that will not happen.
        """
        poll = select.poll()
        for descriptor, events in descriptors:
            poll.register(descriptor, events)
        links = {stream.fileno(): rank for rank, stream in self._links.items()}
        for descriptor in links:
            poll.register(descriptor, select.POLLIN)
        left_s = self._deadline - time.monotonic()
        ready = poll.poll(max(left_s, 0) * 1000)
        if not ready:
            self._overdue(waits_for)
        self._deadline = time.monotonic() + self._timeout_s  # it goes on: large arrays may take their time
        for descriptor, _ in ready:
            if descriptor in links:
                self._hear(links[descriptor])
        for rank, done in self.left.items():
            if done <= self.number:
                self._unequal(rank)

    def listen(self) -> None:
        """Take the news that are there; does not wait.

        Raises:
            CollectiveError: a rank failed or was lost.
        """
        poll = select.poll()
        links = {stream.fileno(): rank for rank, stream in self._links.items()}
        for descriptor in links:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(0):
            self._hear(links[descriptor])

    def broken(self, rank: int, error: OSError) -> CollectiveError:
        """Return why the connection with a rank broke: what is told within a moment, or that it was lost."""
        until = time.monotonic() + _GRACE_S
        while self._links and (left_s := until - time.monotonic()) > 0:
            poll = select.poll()
            for stream in self._links.values():
                poll.register(stream, select.POLLIN)
            links = {stream.fileno(): each for each, stream in self._links.items()}
            try:
                for descriptor, _ in poll.poll(left_s * 1000):
                    self._hear(links[descriptor])
                if rank in self.left:
                    self._unequal(rank)
            except CollectiveError as told:
                return told
        return self._lost(rank, str(error))

    def tell(self, error: CollectiveError) -> None:
        """Tell others why this rank stops."""
        kind = next((name for name, cls in _KINDS.items() if isinstance(error, cls)), "lost")
        self._send({"news": kind, "rank": error.rank, "why": str(error)}, self._links)

    def leave(self) -> None:
        """Tell others that this rank leaves in peace, and close."""
        self._send({"news": "left", "rank": self.rank, "done": self.number}, self._links)
        self.close()

    def close(self) -> None:
        """Close without a word."""
        for stream in self._links.values():
            stream.close()
        self._links.clear()

    def name(self, rank: int) -> str:
        """Return a rank's name for people."""
        return f"rank {rank} ({self._endpoints[rank]})"

    def _hear(self, rank: int) -> None:
        stream = self._links[rank]
        try:
            note = stream.take_note_if_there()
        except (OSError, WireError) as error:
            del self._links[rank]
            stream.close()
            if rank not in self.left:
                raise self._lost(rank, str(error)) from None
            return
        if note is None:
            return
        others = {each: link for each, link in self._links.items() if each != rank}
        if self.rank == 0:
            self._send(note, others)
        about = int(note.get("rank") or 0)
        if note.get("news") == "left":
            self.left[about] = int(note.get("done", 0))
        elif about != self.rank or note.get("news") != "lost":
            raise _KINDS.get(str(note.get("news")), PeerLost)(str(note.get("why")), about)
        else:
            raise PeerLost(f"{self.name(rank)} takes this rank for lost: {note.get('why')}", about)

    def _lost(self, rank: int, why: str) -> PeerLost:
        return PeerLost(f"{self.name(rank)} is gone: {why}", rank)

    def _unequal(self, rank: int) -> None:
        raise PeerDiffers(
            f"{self.name(rank)} has left after {self.left[rank]} operations and this rank is at operation "
            f"{self.number}: all ranks need equal numbers of batches",
            rank,
        )

    def _overdue(self, waits_for: Sequence[int]) -> None:
        names = ", ".join(map(self.name, waits_for)) or "other ranks"
        raise PeerLate(
            f"operation {self.number}: waited {self._timeout_s:g} s for {names}; is it busy, frozen, or out of "
            "batches? PADDLE_COLLECTIVE_TIMEOUT_S says how long to wait",
            waits_for[0] if waits_for else None,
        )

    def _send(self, note: dict[str, Any], links: Mapping[int, Stream]) -> None:
        deadline = time.monotonic() + _TELL_S
        for stream in links.values():
            with contextlib.suppress(OSError):
                stream.send_note(note, deadline)
