# SPDX-License-Identifier: Apache-2.0
"""Watch: performs every wait of a group, and ends the wait when another rank is lost, has left or is late.

Every rank has a control connection to rank 0. A rank that fails sends the reason before it closes, and rank 0 forwards
it, so that all ranks name the rank that failed first. A connection that breaks without a message means that its rank
was lost. When a wait takes too long, rank 0 asks all ranks which of them are waiting: ranks that do not answer are
late.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Mapping, Sequence

from paddle.collective.connection.stream import Stream
from paddle.collective.errors import CollectiveError, PeerDiffers, PeerLate, PeerLost
from paddle.errors import WireError
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.records import Rank, Whole

_KINDS = {"lost": PeerLost, "differs": PeerDiffers, "late": PeerLate}
_TELL_S = 2.0
_GRACE_S = 4.0  # to learn which rank failed first
_ROLL_S = 2.0  # to answer, even on a busy machine


class News(NamedTuple):
    """A notice that ranks exchange over their control connections.

    Attributes:
        news: "lost", "differs" or "late": the rank failed for the reason `why`; "left": it left without error after
            `done` operations; "call": it calls all ranks to round `number`; "overdue": asks which ranks are late;
            "where": asks which ranks are waiting; "waiting": answers "where".
        rank: the rank that the notice is about; None if unknown.
    """

    news: str
    rank: Rank | None = None
    why: str = ""
    done: Whole = 0
    number: Whole = 0


class Watch:
    """One rank's control connections, through which ranks notify each other of failures. Not thread-safe.

    Attributes:
        left: rank -> number of operations it had done, for ranks that left normally.
        number: the number of the current operation of this rank.
        timeout_s: how long ranks wait for each other.
        called: the highest round that any rank has called for; see `await_call`.
    """

    def __init__(
        self, rank: int, links: Mapping[int, Stream], endpoints: Sequence[str], timeout_s: float
    ) -> None:
        self.rank, self._endpoints, self.timeout_s = rank, endpoints, timeout_s
        self._links = dict(links)
        self.left: dict[int, int] = {}
        self.number = self.called = 0
        self._idle = False
        self._waiting: set[int] = set()
        self._deadline = 0.0

    def begin(self, number: int) -> None:
        """Begin operation `number`, with the full timeout."""
        self.number = number
        self._deadline = time.monotonic() + self.timeout_s

    def wait(self, descriptors: Sequence[tuple[int, int]], waits_for: Sequence[int]) -> None:
        """Wait until one of the (descriptor, events) pairs is ready, or a rank fails.

        Args:
            waits_for: the ranks that have to act first, for messages.

        Raises:
            CollectiveError: a rank failed, was lost, left or is late.
        """
        if not self._await_notices(max(self._deadline - time.monotonic(), 0), descriptors):
            raise self._overdue()
        self._deadline = time.monotonic() + self.timeout_s  # there is progress; large arrays may take long
        for rank, done in self.left.items():
            if done <= self.number:
                self._unequal(rank)

    def call(self, number: int) -> None:
        """Notify all ranks that a round begins, unless they have been notified already."""
        if number > self.called:
            self.called = number
            self._send(News("call", self.rank, number=number), self._links)

    def await_call(self, number: int, wake_up: int) -> None:
        """Wait, without a timeout, until a rank calls for this round, or until the descriptor `wake_up` is readable.

        Raises:
            CollectiveError: a rank failed, was lost, or has left.
        """
        self._idle = True
        try:
            while True:
                # Notices are read even if no wait is in progress, so that they do not accumulate.
                ready = self._await_notices(0 if self.called >= number else None, [(wake_up, select.POLLIN)])
                for rank in self.left:
                    self._unequal(rank)
                if wake_up in ready or not ready:
                    return
        finally:
            self._idle = False

    def listen(self) -> None:
        """Process the notices that have arrived, without waiting.

        Raises CollectiveError if a rank failed or was lost.
        """
        self._await_notices(0)

    def broken(self, rank: int, error: OSError, late: bool = False) -> CollectiveError:
        """Return the error for a rank whose connection broke: its own report, otherwise PeerLate or PeerLost."""
        until = time.monotonic() + _GRACE_S
        while self._links and (left_s := until - time.monotonic()) > 0:
            try:
                self._await_notices(left_s)
                if rank in self.left:
                    self._unequal(rank)
            except CollectiveError as failure:
                return failure
        return self._late(rank) if late else self._lost(rank, str(error))

    def report(self, error: CollectiveError) -> None:
        """Send the error that stopped this rank to the other ranks."""
        kind = next((name for name, cls in _KINDS.items() if isinstance(error, cls)), "lost")
        self._send(News(kind, error.rank, str(error)), self._links)

    def leave(self) -> None:
        """Notify the other ranks that this rank leaves without error, and close the connections."""
        self._send(News("left", self.rank, done=self.number), self._links)
        self.close()

    def close(self) -> None:
        """Close the control connections without sending a notice."""
        for stream in self._links.values():
            stream.close()
        self._links.clear()

    def name(self, rank: int) -> str:
        """Return a rank's name for messages, such as "rank 2 (10.0.0.7:6170)"."""
        return f"rank {rank} ({self._endpoints[rank]})"

    def _read_notices(self, rank: int) -> None:
        stream = self._links[rank]
        try:
            notice = stream.take_note_if_there(News)
        except (OSError, WireError) as error:
            del self._links[rank]
            stream.close()
            if rank not in self.left:
                raise self._lost(rank, str(error)) from None
            return
        if notice is None:
            return
        if notice.news == "where":
            if not self._idle:  # a rank without work is waited for
                self._send(News("waiting", self.rank), self._links)
        elif notice.news == "waiting":
            self._waiting.add(rank)
        elif notice.news == "overdue":
            raise self._call_roll()
        else:
            self._take(rank, notice)

    def _take(self, rank: int, notice: News) -> None:
        """Process one notice."""
        if notice.news == "call" and notice.number <= self.called:
            return
        if self.rank == 0:
            self._send(notice, {each: link for each, link in self._links.items() if each != rank})
        if notice.news == "left":
            self.left[notice.rank or 0] = notice.done
        elif notice.news == "call":
            self.called = notice.number
        else:
            raise _KINDS.get(notice.news, PeerLost)(notice.why, notice.rank)

    def _lost(self, rank: int, why: str) -> PeerLost:
        return PeerLost(f"{self.name(rank)} was lost: {why}", rank)

    def _unequal(self, rank: int) -> None:
        raise PeerDiffers(
            f"{self.name(rank)} has left after {self.left[rank]} operations, while this rank is "
            f"at operation {self.number}: all ranks need the same number of batches",
            rank,
        )

    def _overdue(self) -> CollectiveError:
        """Ask rank 0 which rank is late, and return the error."""
        if self.rank == 0:
            return self._call_roll()
        self._send(News("overdue", self.rank), self._links)
        return self.broken(0, TimeoutError(""), late=True)

    def _call_roll(self) -> CollectiveError:
        self._waiting.clear()
        self._send(News("where", 0), self._links)
        until = time.monotonic() + _ROLL_S
        missing = set(self._links)
        while missing and (left_s := until - time.monotonic()) > 0:
            try:
                self._await_notices(left_s)
            except CollectiveError as error:
                return error
            missing = set(self._links) - self._waiting
        return self._late(min(missing, default=None))

    def _late(self, rank: int | None) -> PeerLate:
        name = self.name(rank) if rank is not None else "other ranks, which are all waiting for each other"
        return PeerLate(
            f"operation {self.number}: waited {self.timeout_s:g} s for {name}. It may be busy, "
            "frozen or out of batches; PADDLE_COLLECTIVE_TIMEOUT_S sets the timeout",
            rank,
        )

    def _await_notices(self, timeout_s: float | None, others: Sequence[tuple[int, int]] = ()) -> list[int]:
        """Wait for notices or for one of the other (descriptor, events).

        Process the notices, and return the ready descriptors.
        """
        poll = select.poll()
        links = {stream.fileno(): rank for rank, stream in self._links.items()}
        for descriptor, events in (*others, *((each, select.POLLIN) for each in links)):
            poll.register(descriptor, events)
        ready = [each for each, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)]
        for descriptor in ready:
            if descriptor in links:
                self._read_notices(links[descriptor])
        return ready

    def _send(self, news: News, links: Mapping[int, Stream]) -> None:
        deadline = time.monotonic() + _TELL_S
        for stream in links.values():
            with contextlib.suppress(OSError):
                stream.send_note(news, deadline)
