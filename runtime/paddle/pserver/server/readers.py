# SPDX-License-Identifier: Apache-2.0
"""The readers of one server: processes that look at what it holds and take no part in training.

Nobody waits for a reader, nothing that it asks changes anything, and all of it may be asked again: a server
remembers of a reader only where it is. One that vanished is forgotten with its connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from paddle.errors import PserverError
from paddle.pserver.server.reader_snapshots import Moments
from paddle.pserver.server.values import rows_of_tables
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message, Section, error_message
from paddle.pserver.wire.reader_protocol import READER, reader_stamp, rows_at_once
from paddle.pserver.wire.verbs import Describe, Ok, PullTable, Repeat, StateLost, Verb, Waits

_log = logging.getLogger(__name__)

MAX_READERS = 1024
_SILENT_S = 60.0  # then a reader gives its place to another if there is no other place; it may come back
_REFUSED: Mapping[Verb, str] = {
    Verb.PUSH_PULL: "push",
    Verb.CHUNK: "push",
    Verb.STEP: "push",
    Verb.CONFIGURE: "create tensors",
    Verb.SET_VALUES: "set values",
    Verb.READY: "set values",
    Verb.ATTACH: "share memory",
    Verb.OPEN_STREAM: "open a stream",
    Verb.START_PASS: "take part in a pass",
    Verb.FINISH_PASS: "take part in a pass",
    Verb.SAVE: "save",
}


class Shown(NamedTuple):
    """What readers see."""

    configuration: Configuration
    store: Store


class Showing(Protocol):
    """Whose values readers look at."""

    def shown(self) -> Shown | None:
        """Return the model with its values; None while there are none.

        Raises:
            PserverError: readers cannot look at this.
        """


class Readers:
    """See the module. Not thread-safe."""

    def __init__(
        self, showing: Showing, stamp: int, clock: Callable[[], float], most: int = MAX_READERS
    ) -> None:
        """Start without any.

        Args:
            showing: whose values are read.
            stamp: of the server, as trainers know it.
            clock: monotonic seconds.
            most: readers at a time.
        """
        self._showing, self._clock, self._most = showing, clock, most
        self._stamp = reader_stamp(stamp)
        self._heard: dict[bytes, float] = {}  # by address, the one that was silent longest first
        self._waiting: dict[bytes, Message] = {}
        self._moments = Moments(clock)
        self._handlers: Mapping[Verb, Callable[[Shown, bytes, Message], Message]] = {
            Verb.DESCRIBE: _describe,
            Verb.VIEW: lambda shown, address, m: self._moments.answer(shown.store, address, m),
            Verb.PULL_TABLE: _part_of_table,
            Verb.PULL_ROWS: _rows,
        }

    def __len__(self) -> int:
        """Return how many readers there are."""
        return len(self._heard)

    def handle(self, address: bytes, message: Message) -> Message | None:
        """Return the reply to a reader's message; None: it comes from `tick`.

        Raises:
            PaddleError: it is refused.
        """
        if message.verb in _REFUSED:
            raise PserverError(
                f"a reader cannot {_REFUSED[message.verb]}: it reads values; only the trainers of the job change them"
            )
        if message.verb is not Verb.HELLO and message.stamp != self._stamp:
            text = "this pserver was restarted and the parameters it had are lost: connect again"
            return self._signed(message, error_message(text)._replace(record=StateLost()))
        self._admit(address)
        if message.verb is Verb.HELLO:
            return self._signed(message, Message(Ok()))
        if message.verb is Verb.STATUS:
            return self._signed(message, self._status(address))
        if message.verb not in self._handlers:
            raise PserverError(f"{message.verb.name} is not a request of readers")
        shown = self._showing.shown()
        if shown is None:
            # What waits is answered by `tick`, where nobody hears of a refusal.
            if message.verb is not Verb.DESCRIBE:
                raise PserverError(
                    "the tensors have no values yet: a reader asks for their description first"
                )
            self._waiting[address] = message
            return None
        return self._signed(message, self._handlers[message.verb](shown, address, message))

    def lose(self, address: bytes) -> None:
        """Forget whoever is behind an address."""
        if self._heard.pop(address, None) is not None:
            self._waiting.pop(address, None)
            self._moments.lose(address)
            _log.debug("a reader is gone; there are %d", len(self._heard))

    def tick(self) -> list[tuple[bytes, Message]]:
        """Look at the clock, about once a second; return replies that are due, with their addresses."""
        self._moments.tidy()
        if not self._waiting or self._showing.shown() is None:
            return []
        waiting, self._waiting = self._waiting, {}
        replies = [(address, self.handle(address, message)) for address, message in waiting.items()]
        return [(address, reply) for address, reply in replies if reply is not None]

    def _admit(self, address: bytes) -> None:
        now = self._clock()
        if self._heard.pop(address, None) is None:
            if len(self._heard) >= self._most:
                silent = next(iter(self._heard))
                if now - self._heard[silent] < _SILENT_S:
                    raise PserverError(
                        f"this pserver has {self._most} readers, and takes no more: close some, or share one"
                    )
                self.lose(silent)
            _log.debug("a reader came; there are %d", len(self._heard) + 1)
        self._heard[address] = now

    def _status(self, address: bytes) -> Message:
        """A reader that hears nothing waits for the model, or what it asked got lost."""
        if address not in self._waiting:
            return Message(Repeat())
        return Message(Waits(), sections=(Section.text("", "waiting until trainers create the tensors"),))

    def _signed(self, to: Message, reply: Message) -> Message:
        return reply._replace(trainer=READER, session=to.session, request=to.request, stamp=self._stamp)


def _describe(shown: Shown, address: bytes, message: Message) -> Message:
    text = () if message.expect(Describe).is_brief else (Section.text("", shown.configuration.to_text()),)
    return Message(Ok(shown.store.version), sections=text)


def _part_of_table(shown: Shown, address: bytes, message: Message) -> Message:
    """Return rows as they are: what they owe of decay is taken when trainers have them catch up."""
    table = shown.store.table(message.section("name").as_text())
    asked = message.expect(PullTable)
    _check_count(asked.length, table.share.parameter.name, table.share.width)
    return Message(Ok(), sections=(Section("", table.part(*asked)),))


def _rows(shown: Shown, address: bytes, message: Message) -> Message:
    share = shown.store.share
    widths = {each.parameter.name: each.width for each in share.tables}
    widths |= {each.spec.name: each.spec.width for each in share.growing}
    if len(message.sections) != 1:
        raise PserverError(f"a reader asks for rows of one tensor at once, not of {len(message.sections)}")
    asked = message.sections[0]
    if asked.name in widths:
        _check_count(asked.array.size, asked.name, widths[asked.name])
    return rows_of_tables(shown.store, message)


def _check_count(count: int, name: str, width: int) -> None:
    if count > rows_at_once(width):
        raise PserverError(
            f"a reader gets at most {rows_at_once(width)} rows of {name} at once, asked for {count}"
        )
