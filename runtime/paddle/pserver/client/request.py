# SPDX-License-Identifier: Apache-2.0
"""A trainer's side of one request to a server: a message, followed by chunks if it is a large push.

A trainer sends up to `WINDOW` chunks before the server answers the first of them. The answer to a chunk contains its
values, or is only an acknowledgement; missing values are requested after the reply. This cannot deadlock. A chunk is
answered as soon as the server can continue without more of this push, the reply acknowledges every chunk, and a server
accepts each chunk only once. Any lost message can therefore be sent again, and the window never waits for messages that
come after the push.

    WAITING -> SENT -> TAKEN -> ASKED -> DONE        SENT, ASKED: in transit, limited by the window
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from paddle.errors import WireError
from paddle.pserver.wire.message import WINDOW, Message, Section
from paddle.pserver.wire.verbs import WHOLE, Chunk, Ok, PushPull, Record, Status, Values, Verb
from paddle_node.contract.classes import NamedTuple


class Incoming(NamedTuple):
    """A received message and its server's index; None instead of a message: the request to it must be sent again."""

    server: int
    message: Message | None


class _State(Enum):
    WAITING = 0  # to be sent
    SENT = 1
    TAKEN = 2  # the server has received it; its values have not arrived yet
    ASKED = 3  # for those values
    DONE = 4


_ON_THEIR_WAY = (_State.SENT, _State.ASKED)


class Request:
    """The state of one request to one server: the chunks sent and received so far.

    `chunk` returns part `index` of the gradient, `deliver` accepts part `index` of the values, and `place` returns the
    memory into which this part can be written directly. A push without requested values ends with the reply.

    Attributes:
        head: the first message, with the numbers that all messages of the request carry: see `Exchange`.
        reply: the server's reply, or None before it has arrived.
        repeats: number of messages sent again since the last arrival.
        has_moved: set by every arrival.
        heard_at, asked_at: times of the last message from the server, and of the last inquiry: see `Conversation`.
        idle_since: time since which the server has reported neither a wait nor progress, or None if it does.
    """

    heard_at = asked_at = 0.0
    idle_since: float | None = None

    def __init__(
        self,
        head: Message,
        count: int = 0,
        chunk: Callable[[int], Section] | None = None,
        deliver: Callable[[int, Section], None] | None = None,
        place: Callable[[int], memoryview | None] = lambda index: None,
    ) -> None:
        self.head, self._chunk, self._deliver, self._where = head, chunk, deliver, place
        self._wants_values = not isinstance(head.record, PushPull) or head.record.wants_values
        self._reset(count)
        self.reply: Message | None = None
        self.repeats, self.has_moved = 0, False

    @property
    def is_over(self) -> bool:
        """Return whether the reply and all requested values have arrived."""
        return self.reply is not None and (not self._wants_values or self._done == len(self._states))

    @property
    def progress(self) -> str:
        """The numbers of chunks that were accepted and received, as text for error messages."""
        taken = sum(state.value > _State.SENT.value for state in self._states)
        return f"{taken} of {len(self._states)} chunks were accepted; values of {self._done} were received"

    def leads(self, message: Message) -> bool:
        """Return whether a message is part of the values that are due, rather than the reply."""
        return isinstance(message.record, Values) and self._is_due(message)

    def place(self, message: Message) -> memoryview | None:
        """Return the memory to receive a message's only array into before it is checked; None if a copy is needed.

        Args:
            message: the message, of which only the header has arrived.
        """
        record, states = message.record, self._states
        if isinstance(record, Values) and self._is_due(message):
            index = record.number
            return self._where(index) if index < len(states) and states[index] is not _State.DONE else None
        is_whole = isinstance(record, Ok) and not states and self.reply is None and self._is_due(message)
        return self._where(0) if is_whole else None

    def begin(self) -> Iterator[Message]:
        """Yield the messages that start the request: its head, and the first chunks if it has any."""
        yield self.head
        if self._states:
            yield from self._more()

    def again(self) -> Iterator[Message]:
        """Yield the messages to send after an unknown message was lost.

        A restarted server knows nothing of an incomplete push. Before the reply, every chunk whose values have not
        arrived is therefore sent again.
        """
        yield self.head  # even if it was answered: a server learns from it where values go now
        if self.reply is None:
            for index, state in enumerate(self._states):
                if state is not _State.DONE:
                    self._become(index, _State.WAITING)
            self._next = 0
            yield from self._more()
            return
        for index, state in enumerate(self._states):
            if state is _State.ASKED:
                yield self._message(index)

    def repeat(self, which: int) -> Iterator[Message]:
        """Yield the messages that answer a server's REPEAT of chunk `which`, or of everything from the beginning."""
        if which == WHOLE:
            self._reset(len(self._states))
            yield from self.begin()
        elif which < len(self._states) and self._states[which] in _ON_THEIR_WAY:
            yield self._message(which)

    def inquire(self) -> Iterator[Message]:
        """Yield the messages that ask, after a long silence, what the server has received and what it waits for."""
        yield self._numbered(Status())
        for index, state in enumerate(self._states):
            if state is _State.SENT:
                yield self._numbered(Status(index))
            elif state is _State.ASKED:
                yield self._message(index)

    def take(self, message: Message) -> Iterator[Message]:
        """Process values or the reply; yield the next messages to send.

        Raises:
            WireError: the part number of the values is out of range.
        """
        self.repeats, self.has_moved = 0, True
        if isinstance(message.record, Values):
            self._take_values(message.record.number, message.sections)
        else:
            self.reply = message
            for index, state in enumerate(self._states):
                if state is _State.SENT:
                    self._become(index, _State.TAKEN)
        if self._states:
            yield from self._more()

    def record_message(self, now: float) -> None:
        """Record that a message came from the server, and whether the request made progress."""
        self.heard_at = now
        if self.has_moved:
            self.has_moved, self.idle_since = False, None

    def _is_due(self, message: Message) -> bool:
        head = self.head
        return message.request == head.request and message.session == head.session and not self.is_over

    def _take_values(self, index: int, sections: tuple[Section, ...]) -> None:
        if index >= len(self._states) or self._deliver is None:
            raise WireError(
                f"received chunk {index}, which was not requested; expected 0 to {len(self._states) - 1}"
            )
        state = self._states[index]
        if sections and state is not _State.DONE:
            self._deliver(index, sections[0])
            self._become(index, _State.DONE)
        elif state in (_State.WAITING, _State.SENT):
            self._become(index, _State.TAKEN)

    def _more(self) -> Iterator[Message]:
        """Return the messages that the window allows to send."""
        is_answered = self.reply is not None
        while not is_answered and self._on_their_way < WINDOW and self._next < len(self._states):
            index = self._next
            self._next += 1  # before the yield, because the consumer may stop after any message
            if self._states[index] is _State.WAITING:
                self._become(index, _State.SENT)
                yield self._message(index)
        if self.reply is None or self.reply.verb is not Verb.OK or not self._wants_values:
            return
        while self._on_their_way < WINDOW and self._next_asked < len(self._states):
            index = self._next_asked
            self._next_asked += 1
            if self._states[index] in (_State.TAKEN, _State.WAITING):
                self._become(index, _State.ASKED)
                yield self._message(index)

    def _message(self, index: int) -> Message:
        """Return a chunk, or a request for its values."""
        assert self._chunk is not None
        return self._numbered(
            Chunk(index), (self._chunk(index),) if self._states[index] is _State.SENT else ()
        )

    def _numbered(self, record: Record, sections: tuple[Section, ...] = ()) -> Message:
        _, trainer, session, request, stamp, _ = self.head
        return Message(record, trainer, session, request, stamp, sections)

    def _become(self, index: int, state: _State) -> None:
        before, self._states[index] = self._states[index], state
        self._on_their_way += (state in _ON_THEIR_WAY) - (before in _ON_THEIR_WAY)
        self._done += (state is _State.DONE) - (before is _State.DONE)

    def _reset(self, count: int) -> None:
        self._states = [_State.WAITING] * count
        self._next = self._next_asked = self._done = self._on_their_way = 0
