# SPDX-License-Identifier: Apache-2.0
"""A non-blocking connection to one rank (`Stream`), and functions that wait for it during setup."""

from __future__ import annotations

import contextlib
import json
import math
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from paddle.errors import WireError
from paddle_node.contract import checked_json
from paddle_node.contract.records import fields_of, read
from paddle_node.linux.inet import keep_alive

Note = TypeVar("Note")
Result = TypeVar("Result")
Steps = Generator[int, None, Result]
"""Work on one connection that never blocks: it yields what it waits for, `select.POLLIN` or `select.POLLOUT`."""

Greet = Callable[[socket.socket], Steps["Stream"]]
"""Turns a new socket into a connection with a rank of this job."""

_LENGTH = struct.Struct("<I")
_MAX_NOTE = 1 << 20
_SMALL = 16 << 10
# A node that vanished is detected after about 25 s, even while nothing is sent.
_KEEP_ALIVE = {"idle_s": 10, "pause_s": 5, "count": 3}
UNSENT_S = 25.0


def prepare(sock: socket.socket, unsent_s: float = UNSENT_S) -> None:
    """Set the options of a connection's socket, which both ends use.

    Args:
        unsent_s: seconds that sent data may stay unacknowledged before the connection breaks (TCP_USER_TIMEOUT).
    """
    sock.setblocking(False)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        keep_alive(sock, **_KEEP_ALIVE, unsent_ms=math.ceil(1000 * unsent_s))


class Stream:
    """A non-blocking byte stream to and from one rank. Not thread-safe."""

    def __init__(self, sock: socket.socket) -> None:
        """Wrap a socket set up by `prepare`."""
        self.sock = sock
        self._sealed = isinstance(sock, ssl.SSLSocket)
        self._note = bytearray()

    def fileno(self) -> int:
        """Return the descriptor of the connection, for polling."""
        return self.sock.fileno()

    def send_some(self, views: Sequence[memoryview]) -> int:
        """Send a prefix of these bytes and return its length; 0 if the connection accepts no bytes now.

        After 0, the next call must begin with the same bytes: some may already have been sent.

        Raises:
            ConnectionError: the rank has exited or is unreachable.
        """
        try:
            if not self._sealed:
                return self.sock.sendmsg(views)
            first = views[0]
            if len(views) > 1 and sum(map(len, views)) <= _SMALL:
                first = memoryview(b"".join(views))
            return self.sock.send(first)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0
        except (ssl.SSLError, TimeoutError) as error:
            raise ConnectionAbortedError(str(error)) from None

    def take_some(self, view: memoryview) -> int:
        """Receive into the beginning of a buffer and return the number of bytes; 0 if none have arrived.

        Raises:
            ConnectionError: the rank has exited or is unreachable.
        """
        try:
            count = self.sock.recv_into(view)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except (ssl.SSLError, TimeoutError) as error:
            raise ConnectionAbortedError(str(error)) from None
        if not count and len(view):
            raise ConnectionResetError("the connection was closed")
        return count

    def sending(self, data: bytes) -> Steps[None]:
        """Send all of the bytes, as a generator for `finish`.

        Raises ConnectionError if the rank has exited or is unreachable.
        """
        rest = memoryview(data)
        while rest:
            count = self.send_some([rest])
            rest = rest[count:]
            if not count:
                yield select.POLLOUT

    def taking(self, count: int) -> Steps[bytes]:
        """Receive exactly `count` bytes, as a generator for `finish`; see `sending` for errors."""
        data = bytearray(count)
        rest = memoryview(data)
        while rest:
            got = self.take_some(rest)
            rest = rest[got:]
            if not got:
                yield select.POLLIN
        return bytes(data)

    def taking_note(self, kind: type[Note], most: int = _MAX_NOTE) -> Steps[Note]:
        """Receive a record of at most `most` bytes, as a generator.

        See `sending` for errors, and WireError for invalid bytes.
        """
        while (note := self.take_note_if_there(kind, most)) is None:
            yield select.POLLIN
        return note

    def send_note(self, note: Any, deadline: float) -> None:
        """Send a small record of `paddle_node.contract.records`; see `finish` for errors and deadline."""
        text = json.dumps(fields_of(note)).encode()
        finish(self.sending(_LENGTH.pack(len(text)) + text), self.fileno(), deadline)

    def take_note(self, kind: type[Note], deadline: float) -> Note:
        """Wait for a record and return it; see `finish` and `taking_note` for errors and deadline."""
        return finish(self.taking_note(kind), self.fileno(), deadline)

    def take_note_if_there(self, kind: type[Note], most: int = _MAX_NOTE) -> Note | None:
        """Return the next record (at most `most` bytes) if all of it has arrived, without reading beyond its end.

        Raises:
            ConnectionError: the rank has exited.
            WireError: the next record is not a record of this kind.
        """
        while True:
            missing = _missing(self._note, most)
            if not missing:
                text, self._note = bytes(self._note[_LENGTH.size :]), bytearray()
                try:
                    return read(kind, checked_json.loads(text), kind.__name__.lower(), "another rank")
                except ValueError as error:
                    raise WireError(str(error)) from None
            part = bytearray(missing)
            got = self.take_some(memoryview(part))
            if not got:
                return None
            self._note += part[:got]

    def close(self) -> None:
        """Close the connection; sent bytes are still delivered."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self.sock.close()


def finish(steps: Steps[Result], descriptor: int, deadline: float) -> Result:
    """Run a generator of steps to its end, waiting for the connection between steps, and return its result.

    Args:
        descriptor: the descriptor of the connection that the steps wait for.
        deadline: a time of the monotonic clock.

    Raises:
        TimeoutError: the steps did not end before the deadline.
    """
    poll = select.poll()
    try:
        while True:
            poll.register(descriptor, next(steps))
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                raise TimeoutError("no answer before the deadline")
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        steps.close()


def _missing(note: bytearray, most: int) -> int:
    if len(note) < _LENGTH.size:
        return _LENGTH.size - len(note)
    length = _LENGTH.unpack_from(note)[0]
    if length > most:
        raise WireError(f"a control message has {length} bytes; expected at most {most}")
    return int(_LENGTH.size + length - len(note))
