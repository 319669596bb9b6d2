# SPDX-License-Identifier: Apache-2.0
"""Serves the readers of one server: processes that read its values and do not train.

No trainer waits for a reader. A reader's requests do not change the state and can be repeated; a server stores only the
reader's position, and forgets the reader when its connection ends.

Readers receive a consistent snapshot of dense values, in parts, while training continues. Values that fit into one part
are copied for each answer. For larger slabs, all readers share at most two copies: the newest one, and an older one
that is still being read. Copying takes at most a tenth of the time; until a new copy is allowed, readers start with the
newest existing one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from paddle.errors import PserverError, WireError
from paddle.pserver.server.model import rows_of_tables
from paddle.pserver.server.service import ReaderView, Service
from paddle.pserver.sparse.blocks import NO_IDS
from paddle.pserver.sparse.walk import Cursor
from paddle.pserver.store.gradient import Slab
from paddle.pserver.store.store import Store
from paddle.pserver.wire.message import (
    READ_PART,
    READER,
    Message,
    Section,
    error_message,
    reader_stamp,
    rows_at_once,
)
from paddle.pserver.wire.table_rows import LEFT, lineage_section, row_sections
from paddle.pserver.wire.verbs import (
    Describe,
    Ok,
    PullTable,
    Repeat,
    StateLost,
    Verb,
    View,
    Waits,
    Walk,
    Walked,
)
from paddle_node.contract.classes import dataclass, field

_COPIES = 2
_REST = 9.0  # multiple of the time that copying took
_HOLD_S = 120.0  # then a copy is dropped even if a reader is in the middle of it, which must start again
_UNREAD_S = 5.0
_log = logging.getLogger(__name__)

_MOST_LEFT = 1 << 20  # ids of removed rows; after more, all rows are read again

MAX_READERS = 1024
_SILENT_S = 60.0  # then another reader can take the place of this one, which may connect again
_REFUSED: Mapping[Verb, str] = {
    Verb.PUSH_PULL: "push",
    Verb.CHUNK: "push",
    Verb.STEP: "push",
    Verb.CONFIGURE: "create tensors",
    Verb.SET_VALUES: "set values",
    Verb.SET_ROWS: "set values",
    Verb.SHRINK: "drop rows",
    Verb.READY: "set values",
    Verb.ATTACH: "share memory",
    Verb.OPEN_STREAM: "open a stream",
    Verb.START_PASS: "take part in a pass",
    Verb.FINISH_PASS: "take part in a pass",
    Verb.SAVE: "save",
}


@dataclass(slots=True)
class _Copy:
    """All dense values after batch `version`; `reading`: addresses of the readers that have not read all of it yet."""

    version: int
    slab: Slab
    made_at: float
    read_at: float
    sections: dict[int, Section] = field(default_factory=dict)
    reading: set[bytes] = field(default_factory=set)

    def part(self, start: int) -> Section:
        """Return the part that starts at `start`; its checksum is computed once for all readers."""
        if start not in self.sections:
            self.sections[start] = Section("", self.slab[start : start + READ_PART])
        return self.sections[start]


class Moments:
    """The snapshots of one store that readers share. Not thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._copies: list[_Copy] = []
        self._next_at = 0.0

    def answer(self, store: Store, address: bytes, message: Message) -> Message:
        """Return the answer to a reader's VIEW: one part of a snapshot.

        It has no section if the copy was dropped, so that the reader must restart.

        Raises:
            WireError: the part does not exist.
        """
        (start, version), size = message.expect(View), store.slab.size
        if start % READ_PART or start >= max(size, 1):
            raise WireError(
                f"first element of the requested values: expected a multiple of {READ_PART} below {size}, got {start}"
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
        """Remove the reader at this address from all copies, because its connection ended."""
        for copy in self._copies:
            copy.reading.discard(address)

    def tidy(self) -> None:
        """Drop the snapshots that no reader has requested for a while."""
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


class Readers:
    """The readers of one server and their requests; see the module's docstring. Not thread-safe."""

    def __init__(
        self,
        showing: Service,
        stamp: int,
        clock: Callable[[], float],
        most: int = MAX_READERS,
        place: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        """Start without readers.

        Args:
            showing: provides the values that are read.
            stamp: stamp of the server, as trainers know it.
            clock: monotonic seconds.
            most: maximum number of simultaneous readers.
            place: returns the server's number in the trainers' list and the list's length, if they are known.
        """
        self._showing, self._clock, self._most, self._place = showing, clock, most, place
        self._stamp = reader_stamp(stamp)
        self._last_seen: dict[bytes, float] = {}  # by address, the one that was silent longest first
        self._waiting: dict[bytes, Message] = {}
        self._moments = Moments(clock)
        self._handlers: Mapping[Verb, Callable[[ReaderView, bytes, Message], Message]] = {
            Verb.DESCRIBE: _describe,
            Verb.VIEW: lambda shown, address, m: self._moments.answer(shown.store, address, m),
            Verb.PULL_TABLE: _part_of_table,
            Verb.PULL_ROWS: _rows,
            Verb.WALK: _walk,
        }

    def __len__(self) -> int:
        """Return the number of readers."""
        return len(self._last_seen)

    def handle(self, address: bytes, message: Message) -> Message | None:
        """Return the reply to a reader's message; None means a later `tick` returns it.

        Raises:
            PaddleError: the message is refused.
        """
        if message.verb in _REFUSED:
            raise PserverError(
                f"a reader cannot {_REFUSED[message.verb]}: it only reads values; only the trainers "
                "of the job change them"
            )
        if message.verb is not Verb.HELLO and message.stamp != self._stamp:
            text = "this pserver was restarted and lost its parameters: connect again"
            return self._signed(message, error_message(text)._replace(record=StateLost()))
        self._admit(address)
        if message.verb is Verb.HELLO:
            return self._signed(message, Message(Ok()))
        if message.verb is Verb.STATUS:
            return self._signed(message, self._status(address))
        if message.verb not in self._handlers:
            raise PserverError(f"a reader cannot send the request {message.verb.name}")
        shown = self._showing.shown()
        if shown is None:
            # Waiting requests are answered by `tick`, which cannot report a refusal.
            if message.verb is not Verb.DESCRIBE:
                raise PserverError(
                    "the tensors have no values yet: send DESCRIBE, which waits for the values"
                )
            self._check_first()
            self._waiting[address] = message
            return None
        if shown.store.failure and message.verb is not Verb.DESCRIBE:
            raise PserverError(shown.store.failure)
        return self._signed(message, self._handlers[message.verb](shown, address, message))

    def lose(self, address: bytes) -> None:
        """Remove the reader at this address, because its connection ended."""
        if self._last_seen.pop(address, None) is not None:
            self._waiting.pop(address, None)
            self._moments.lose(address)
            _log.debug("a reader disconnected; %d are connected", len(self._last_seen))

    def tick(self) -> list[tuple[bytes, Message]]:
        """Check deadlines, about once a second; return replies that are due, with their addresses."""
        self._moments.tidy()
        if not self._waiting or self._showing.shown() is None:
            return []
        waiting, self._waiting = self._waiting, {}
        replies = [(address, self.handle(address, message)) for address, message in waiting.items()]
        return [(address, reply) for address, reply in replies if reply is not None]

    def _admit(self, address: bytes) -> None:
        now = self._clock()
        if self._last_seen.pop(address, None) is None:
            if len(self._last_seen) >= self._most:
                silent = next(iter(self._last_seen))
                if now - self._last_seen[silent] < _SILENT_S:
                    raise PserverError(
                        f"this pserver already has the maximum of {self._most} readers: close some, or share one"
                    )
                self.lose(silent)
            _log.debug("a reader connected; %d are connected", len(self._last_seen) + 1)
        self._last_seen[address] = now

    def _status(self, address: bytes) -> Message:
        """Answer a reader that has no reply yet, because it waits for the model or its request was lost."""
        if address not in self._waiting:
            return Message(Repeat())
        self._check_first()
        return Message(Waits(), sections=(Section.text("", "waiting until trainers create the tensors"),))

    def _check_first(self) -> None:
        """Check that this may be the first server in the trainers' list, which a reader asks for the model."""
        number, listed = self._place() or (0, 0)
        if number:
            raise PserverError(
                f"this pserver is number {number} of {listed} in its job, but is listed as number 0: use the endpoints "
                "and sparse_endpoints of the job's trainers"
            )

    def _signed(self, to: Message, reply: Message) -> Message:
        return reply._replace(trainer=READER, session=to.session, request=to.request, stamp=self._stamp)


def _describe(shown: ReaderView, address: bytes, message: Message) -> Message:
    text = () if message.expect(Describe).is_brief else (Section.text("", shown.configuration.to_text()),)
    return Message(Ok(shown.store.version), sections=text)


def _part_of_table(shown: ReaderView, address: bytes, message: Message) -> Message:
    """Return rows as stored; pending decay is applied only when trainers access them."""
    table = shown.store.table(message.section("name").as_text())
    asked = message.expect(PullTable)
    _check_count(asked.length, table.share.parameter.name, table.share.width)
    return Message(Ok(), sections=(Section("", table.part(*asked)),))


def _rows(shown: ReaderView, address: bytes, message: Message) -> Message:
    share = shown.store.share
    widths = {each.parameter.name: each.width for each in share.tables}
    widths |= {each.spec.name: each.spec.width for each in share.growing}
    if len(message.sections) != 1:
        raise PserverError(
            f"expected the rows of one tensor in a reader's request, got those of {len(message.sections)}"
        )
    asked = message.sections[0]
    if asked.name in widths:
        _check_count(asked.array.size, asked.name, widths[asked.name])
    return rows_of_tables(shown.store, message)


def _walk(shown: ReaderView, address: bytes, message: Message) -> Message:
    """Return the next rows of a growing table; no state of the reader is stored."""
    asked, name = message.expect(Walk), message.section("name").as_text()
    served = shown.store.growing.get(name)
    if served is None:
        raise PserverError(f"this server has no growing table {name!r}; it has {sorted(shown.store.growing)}")
    table, sections = served.table, tuple[Section, ...]()
    most = rows_at_once(served.width + asked.with_states * table.state_size)
    since = None if asked.since < 0 else asked.since
    if (asked.segment, asked.first) == (0, 0):
        sections = (lineage_section(table.lineage),)
        left = NO_IDS if since is None else table.left_since(since)
        if left is None or len(left) > _MOST_LEFT:
            since = None
        elif len(left):
            sections = (*sections, Section(LEFT, left))
    found, at, reached = table.walk(
        Cursor(asked.segment, asked.first), since, most, with_states=asked.with_states
    )
    return Message(
        Walked(table.clock, -1 if reached is None else reached, at.segment, at.first),
        sections=(*row_sections(found), *sections),
    )


def _check_count(count: int, name: str, width: int) -> None:
    if count > rows_at_once(width):
        raise PserverError(
            f"a reader may request at most {rows_at_once(width)} rows of {name} at a time, not {count}"
        )
