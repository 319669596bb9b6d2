# SPDX-License-Identifier: Apache-2.0
"""The sessions of a server's trainers: which trainers are connected or have left, and the last request of each.

A request is executed once, even if it arrives several times: the reply to the last request is saved and sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle.errors import PserverError, WireError
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import ANY_NUMBER, LAYOUTS, NO_SLAB, Hello, Ok, Verb
from paddle_node.contract.classes import dataclass


@dataclass(slots=True)
class Session:
    """The session of one trainer process on one server.

    Attributes:
        address: transport address; changes when the process reconnects.
        last: number of its newest request.
        reply: the answer to that request, or None while it waits.
        lost_at: monotonic time in seconds at which the connection broke, or None.
        verb: verb of its newest request.
    """

    trainer: int
    id: int
    address: bytes
    last: int = 0
    reply: Message | None = None
    lost_at: float | None = None
    verb: Verb = Verb.HELLO

    def record_message(self, address: bytes) -> None:
        """Record a message's source address, which replaces the session's address if its connection broke."""
        if self.lost_at is not None and address != self.address:
            self.address, self.lost_at = address, None


class Sessions:
    """The sessions of all trainers, at most one per trainer id."""

    def __init__(self, num_trainers: int) -> None:
        self.num_trainers = num_trainers
        self.left: set[int] = set()
        # This server's number in the trainers' list, and the list's length.
        self.place: tuple[int, int] | None = None
        self._by_trainer: dict[int, Session] = {}

    def join(self, message: Message, address: bytes) -> tuple[Session, bool]:
        """Create or find the session to which a HELLO belongs; return whether it is new.

        A process that takes over gets the trainer id even if the earlier process seems connected, because a machine
        that loses power does not close its connections.

        Raises:
            PserverError: the trainer id does not exist in this job, or a running process already has it; or the trainer
                has a different list of servers.
        """
        trainer, hello = message.trainer, message.expect(Hello)
        if hello.num_trainers not in (self.num_trainers, ANY_NUMBER):
            raise PserverError(
                f"number of trainers: this pserver has --num_gradient_servers={self.num_trainers}, but trainer "
                f"{trainer} has {hello.num_trainers}; give both the same number (in Fluid, trainers= of transpile)"
            )
        if trainer >= self.num_trainers:
            raise PserverError(f"trainer_id: expected 0 to {self.num_trainers - 1}, got {trainer}")
        session = self._by_trainer.get(trainer)
        is_new = session is None or session.id != message.session
        is_taken = session is not None and session.lost_at is None and trainer not in self.left
        if is_new and is_taken and not hello.takes_over:
            raise PserverError(
                f"trainer_id {trainer} is used by another process that is still connected; give each trainer its own, "
                'such as int(os.environ["PADDLE_TRAINER_ID"]). A script must close() a trainer before creating another'
            )
        if session is not None and not is_new and message.request < session.last:
            raise PserverError(f"trainer {trainer} sent another greeting in a session that had already begun")
        self._check_place(trainer, hello)
        if session is None or is_new:
            session = self._by_trainer[trainer] = Session(trainer, message.session, address)
        session.address, session.lost_at = address, None
        self.left.discard(trainer)
        return session, is_new

    def _check_place(self, trainer: int, hello: Hello) -> None:
        """Compare this server's place in a trainer's list: servers that hold no part of a model see nothing else."""
        place = (hello.number, hello.listed)
        if not hello.listed:
            return
        if hello.number >= hello.listed:
            raise WireError(
                f"number in the list of servers: expected 0 to {hello.listed - 1}, got {hello.number}"
            )
        if self.place is not None and self.place != place:
            raise PserverError(
                f"servers: trainer {trainer} lists this pserver as number {place[0]} of {place[1]}, but it is already "
                f"number {self.place[0]} of {self.place[1]}; give every trainer the same list, or restart the pservers"
            )
        self.place = place

    def find(self, message: Message) -> Session:
        """Return the session that a request belongs to.

        Raises:
            PserverError: the message belongs to no session, or a newer process took over the trainer id.
        """
        session = self._by_trainer.get(message.trainer)
        is_own = session is not None and session.id == message.session
        # The last request before leaving may be repeated: its answer may have been lost.
        if (
            session is None
            or not is_own
            or (message.trainer in self.left and message.request != session.last)
        ):
            raise PserverError(f"trainer {message.trainer} has no session: it must connect first")
        return session

    def get(self, trainer: int) -> Session | None:
        """Return the newest session of a trainer."""
        return self._by_trainer.get(trainer)

    def lose(self, address: bytes, now: float) -> Session | None:
        """Record that the connection from an address broke; return the session that used it."""
        for session in self._by_trainer.values():
            if session.address == address and session.lost_at is None and session.trainer not in self.left:
                session.lost_at = now
                return session
        return None

    def all(self) -> list[Session]:
        """Return the newest session of every trainer, in the order of trainer ids."""
        return [session for _, session in sorted(self._by_trainer.items())]

    def take_up(self, session: Session) -> None:
        """Add a session of an earlier process of this server."""
        self._by_trainer[session.trainer] = session

    def away_since(self, trainer: int, before: float) -> bool:
        """Return whether a trainer has never connected, or lost its connection before time `before`."""
        session = self._by_trainer.get(trainer)
        return session is None or (session.lost_at is not None and session.lost_at < before)

    def describe(self, trainers: Sequence[int]) -> str:
        """Format trainer ids, with the known state of trainers that are not connected."""
        words = []
        for trainer in trainers:
            session = self._by_trainer.get(trainer)
            what = (
                " (never seen)"
                if session is None
                else " (connection lost)"
                if session.lost_at is not None
                else ""
            )
            words.append(f"{trainer}{what}")
        return ("trainer " if len(words) == 1 else "trainers ") + ", ".join(words)


def sessions_to_json(sessions: Sessions, is_to_come: Callable[[Session], bool]) -> dict[str, Any]:
    """Return all sessions and the trainers that left, from which the server's next process learns the last requests.

    Replies with parameters are not saved: trainers that wait for one get the current values.

    Args:
        is_to_come: whether a session's newest request may be executed again.
    """
    every = [_to_json(session, is_to_come(session)) for session in sessions.all()]
    return {"left": sorted(sessions.left), "place": sessions.place, "all": every}


def sessions_from_json(
    sessions: Sessions, saved: dict[str, Any], values: Callable[[int], Message], stamp: int
) -> None:
    """Restore the sessions that `sessions_to_json` returned.

    Args:
        values: creates the answer to a trainer's push.
        stamp: stamp of this server.
    """
    sessions.left.update(saved["left"])
    place = saved.get("place")
    sessions.place = None if place is None else (place[0], place[1])
    for each in saved["all"]:
        session = Session(each["trainer"], each["id"], b"", last=each["last"], verb=Verb(each["verb"]))
        reply = each["reply"]
        if reply is not None:
            made = values(session.trainer) if reply["values"] else _reply_from_json(reply)
            session.reply = made.numbered(session.trainer, session.id, session.last, stamp)
        sessions.take_up(session)


def _to_json(session: Session, is_to_come: bool) -> dict[str, Any]:
    reply = None if is_to_come or session.reply is None else _reply_to_json(session.reply)
    return {
        "trainer": session.trainer,
        "id": session.id,
        "last": session.last - is_to_come,
        "verb": int(session.verb),
        "reply": reply,
    }


def _reply_to_json(reply: Message) -> dict[str, Any]:
    record = reply.record
    is_values = isinstance(record, Ok) and (bool(reply.sections) or record.slab != NO_SLAB)
    return {
        "verb": int(reply.verb),
        "record": record,
        "texts": [] if is_values else [[section.name, section.as_text()] for section in reply.sections],
        "values": is_values,
    }


def _reply_from_json(saved: dict[str, Any]) -> Message:
    record = LAYOUTS[Verb(saved["verb"])][0]._make(saved["record"])
    return Message(record, sections=tuple(Section.text(name, text) for name, text in saved["texts"]))
