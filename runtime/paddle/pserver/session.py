# SPDX-License-Identifier: Apache-2.0
"""The trainers a server knows: who is connected, who left, and the last request of each.

A request is carried out once, however often it arrives: the last one's reply is kept and sent again.
"""

from __future__ import annotations

from dataclasses import dataclass

from paddle.errors import PserverError
from paddle.pserver.message import Message


@dataclass(slots=True)
class Session:
    """One client process of one trainer.

    Attributes:
        address: where the transport reaches it; changes when it connects anew.
        last: number of its newest request.
        reply: the answer to that, or None while it waits.
        lost_at: monotonic time at which its connection broke, or None.
    """

    trainer: int
    id: int
    address: bytes
    last: int = 0
    reply: Message | None = None
    lost_at: float | None = None


class Sessions:
    """At most one session for each trainer id."""

    def __init__(self, num_trainers: int) -> None:
        self.num_trainers = num_trainers
        self.left: set[int] = set()
        self._by_trainer: dict[int, Session] = {}

    def join(self, message: Message, address: bytes) -> Session:
        """Start the session of a HELLO, or find it again.

        Raises:
            PserverError: the trainer id does not exist in this job, or a living process has it already.
        """
        trainer = message.trainer
        if message.value != self.num_trainers:
            raise PserverError(
                f"number of trainers: this pserver has --num_gradient_servers={self.num_trainers}, "
                f"trainer {trainer} says {message.value}; give both the same number"
            )
        if trainer >= self.num_trainers:
            raise PserverError(f"trainer_id: expected 0 to {self.num_trainers - 1}, got {trainer}")
        old = self._by_trainer.get(trainer)
        if old is not None and old.id != message.session and old.lost_at is None and trainer not in self.left:
            raise PserverError(
                f"trainer_id {trainer} is taken by another process that is still connected; "
                "give each trainer its own"
            )
        if old is None or old.id != message.session:
            self._by_trainer[trainer] = Session(trainer, message.session, address)
        self.left.discard(trainer)
        return self._by_trainer[trainer]

    def find(self, message: Message) -> Session:
        """Return the session a request belongs to.

        Raises:
            PserverError: it has none, or a newer process took the trainer id over.
        """
        session = self._by_trainer.get(message.trainer)
        if session is None or session.id != message.session or message.trainer in self.left:
            raise PserverError(f"trainer {message.trainer} has no session here: it must connect first")
        return session

    def get(self, trainer: int) -> Session | None:
        """Return the newest session of a trainer."""
        return self._by_trainer.get(trainer)

    def lose(self, address: bytes, now: float) -> Session | None:
        """Note that the connection behind an address broke; return the session that used it."""
        for session in self._by_trainer.values():
            if session.address == address and session.lost_at is None and session.trainer not in self.left:
                session.lost_at = now
                return session
        return None

    def absent_since(self, trainer: int) -> float | None:
        """Return 0 if a trainer never came, the time at which it was lost, or None while it is connected."""
        session = self._by_trainer.get(trainer)
        return 0.0 if session is None else session.lost_at

    def describe(self, trainers: list[int]) -> str:
        """Return trainer ids with what is known of each: connected, lost or never seen."""
        words = []
        for trainer in trainers:
            since = self.absent_since(trainer)
            what = "connected" if since is None else "connection lost" if since else "never seen"
            words.append(f"{trainer} ({what})")
        return ("trainer " if len(words) == 1 else "trainers ") + ", ".join(words)
