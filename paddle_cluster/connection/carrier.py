# SPDX-License-Identifier: Apache-2.0
"""The connection of a link: reads from a stream and writes to it in bounded turns, on the threads of `Reactor`.

The data belongs to the conversation, which may outlive the connection. The carrier passes received data to the
conversation, and asks it for data to write, starting at a given position. After a conversation has released its
carrier, the carrier no longer calls it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from paddle_cluster.connection.bootstrap import Bootstrap
from paddle_cluster.connection.reactor import Next, Reactor, Task
from paddle_node.contract import frames
from paddle_node.contract.frames import FrameError, Message
from paddle_node.contract.opening import marker
from paddle_node.contract.to_launcher import TO_LAUNCHER

START_LIMIT_S = 30.0  # from the login to the agent's first line
READ_SIZE = 1 << 18
WRITE_SIZE = 1 << 17
TURN_SIZE = 1 << 18  # bytes to write before other connections get their turn
NOISE_KEPT = 500
MAX_NOISE = 1 << 20  # maximum output of a login shell before the agent's


class Decoder:
    """An incremental decoder of an agent's output into messages; skips all bytes before the marker.

    Attributes:
        started: whether the marker has been received.
        frames: decodes the bytes after the marker; later bytes can be passed to it directly.
    """

    def __init__(self, nonce: str) -> None:
        self.started = False
        self._noise = b""
        self._marker = marker(nonce)
        self._skipped = 0
        self._buffer = bytearray()
        self.frames = frames.Decoder("agent", TO_LAUNCHER)

    def feed(self, data: bytes) -> list[Message]:
        """Decode the next bytes and return the messages that they complete.

        Raises:
            FrameError: no marker within MAX_NOISE bytes, or bytes that are not a valid frame.
        """
        if self.started:
            return self.frames.feed(data)
        self._buffer += data
        return self.frames.feed(bytes(self._buffer)) if self._find_marker() else []

    @property
    def noise(self) -> str:
        """Return the last part of the output before the marker."""
        rest = b"" if self.started else bytes(self._buffer)
        return (self._noise + rest)[-NOISE_KEPT:].decode("utf-8", "replace").strip()

    def _find_marker(self) -> bool:
        at = self._buffer.find(self._marker)
        self.started = at >= 0
        # the remaining bytes may end in the first half of the marker
        noise = at if self.started else max(0, len(self._buffer) - len(self._marker) + 1)
        self._noise = (self._noise + self._buffer[:noise])[-NOISE_KEPT:]
        self._skipped += noise
        del self._buffer[: noise + len(self._marker) if self.started else noise]
        if self._skipped > MAX_NOISE:
            raise FrameError(f"received {self._skipped} bytes, but not the agent's first line")
        return self.started


class Stream(Protocol):
    """The interface of a byte stream to an agent.

    One thread at a time may call `read`, and one `write`; any thread may call `close`.
    """

    @property
    def bootstrap(self) -> Bootstrap:
        """Return the code and data that the agent's interpreter reads from its standard input."""

    @property
    def may_live_on(self) -> bool:
        """Return whether the agent may still be running even though the stream has ended; valid after `end`."""

    def fileno(self) -> int:
        """Return a descriptor that is readable while `read` has data or the end of the stream."""

    def report_to(self, arrived: Callable[[], None]) -> bool:
        """Call `arrived` whenever `read` has data or the end of the stream, or return False: poll `fileno` instead."""

    def may_block(self) -> bool:
        """Return whether the next `read` may block until the peer accepts data."""

    def read(self, limit: int) -> bytes | None:
        """Return up to `limit` available bytes, b"" at the end, or None if none are available now."""

    def write(self, data: bytes) -> int:
        """Write as much of `data` as the peer accepts within a short time; return the number of bytes.

        Raises OSError if the peer has closed.
        """

    def close(self) -> None:
        """Close both directions of the stream; `read` then returns the end of the stream."""

    def end(self) -> str:
        """Close the stream and return why it ended, as a sentence."""


class Conversation(Protocol):
    """The interface of the protocol on one link, whose bytes a carrier transports."""

    @property
    def has_begun(self) -> bool:
        """Return whether the agent's first line has been received."""

    @property
    def can_continue(self) -> bool:
        """Return whether reading can continue, because the received events have been processed."""

    def hear(self, carrier: Carrier, data: bytes) -> None:
        """Process received data; raise FrameError if it is not valid output of an agent."""

    def data_to_write(self, position: int, most: int) -> bytes:
        """Return at most `most` bytes to write, starting at the given position of the output."""

    def written(self, position: int) -> None:
        """Record that all bytes before a position have been written."""

    def over(self, carrier: Carrier, fault: str, ended: str) -> None:
        """Handle the end of the stream, which the carrier has closed.

        Args:
            fault: the error that ended the conversation, or empty.
            ended: the stream's description of its end.
        """


class Carrier:
    """The transport of one conversation over one stream; active once `start` is called.

    Args:
        stream: owned by the carrier from now on.
        position: the position in the output to continue from.
    """

    def __init__(self, stream: Stream, conversation: Conversation, reactor: Reactor, position: int) -> None:
        self.stream = stream
        self._conversation = conversation
        self._reactor = reactor
        self._position = position
        self._start_by = time.monotonic() + START_LIMIT_S
        self._fault = ""
        self._closed = False
        self._is_over = False  # there is nothing more to read
        self._ended = threading.Event()
        self._writing = Task(self._write_turn)
        self._shutting = Task(self._shut)
        self._read_once_more: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start reading from the stream and writing to it."""
        self._read_once_more = self._reactor.watch(self)
        self._read_once_more()  # bytes of a hand-over may be in the stream's buffer, unseen by the descriptor
        self.write_soon()

    def write_soon(self) -> None:
        """Ask the reactor to write queued data soon; return immediately."""
        self._reactor.ask(self._writing)

    def close(self) -> None:
        """Start closing the connection without blocking; this may take seconds."""
        self._closed = True
        self._reactor.ask(self._shutting)

    # The interface for `Reactor`

    def fileno(self) -> int:
        """Return a descriptor that is readable while there is data to read."""
        return self.stream.fileno()

    def report_to(self, arrived: Callable[[], None]) -> bool:
        """Register `arrived` to be called when data can be read; return False if `fileno` must be polled instead."""
        return self.stream.report_to(arrived)

    def may_block(self) -> bool:
        """Return whether the next `read_turn` may block until the peer acts."""
        return self.stream.may_block()

    def can_continue(self) -> bool:
        """Return whether reading can continue, because the received events have been processed."""
        return self._closed or self._conversation.can_continue

    def waits_until(self) -> float | None:
        """Return the deadline for the agent's first line, if it has not arrived yet."""
        return None if self._conversation.has_begun else self._start_by

    def read_turn(self) -> Next:
        """Pass available data, or the end of the stream, to the conversation; return what the reactor does next."""
        if self._ended.is_set():
            return Next.NOTHING
        try:
            data = b"" if self._closed or self._fault or self._is_over else self.stream.read(READ_SIZE)
            if data:
                self._conversation.hear(self, data)
            # a login script may produce endless output
            if data != b"" and not self._conversation.has_begun and time.monotonic() >= self._start_by:
                raise FrameError(f"no node agent started within {START_LIMIT_S:.0f} s")
        except OSError:  # a broken connection, which `end` will explain
            data = b""
        except FrameError as error:
            self._fault = self._fault or str(error)
            data = b""
        except Exception as error:  # noqa: BLE001 - this thread reads from all nodes
            self._fault = self._fault or f"{type(error).__name__}: {error}"
            data = b""
        if data == b"":
            if not self._is_over:
                self._is_over = True
                return Next.TASK  # the node has seconds to report why: others are read meanwhile
            self._reactor.forget(self)
            self._conversation.over(self, self._fault, self.stream.end())
            self._ended.set()
            return Next.NOTHING
        return Next.BYTES if self._conversation.can_continue else Next.PAUSE

    def _shut(self) -> bool:
        self._closed = True
        self.stream.close()
        self._read_once_more()
        return False

    # Writing

    def _write_turn(self) -> bool:
        """Write a limited amount of data; return whether more is waiting."""
        try:
            return self._write(TURN_SIZE)
        except OSError:  # reading will find the end of the stream, and the reason
            pass
        except ValueError as error:
            self._fault = str(error)
            return self._shut()
        except Exception as error:  # noqa: BLE001 - who waits for the node must hear of it
            self._fault = f"{type(error).__name__}: {error}"
            return self._shut()
        return False

    def _write(self, limit: int) -> bool:
        while limit > 0 and not self._closed:
            data = self._conversation.data_to_write(self._position, WRITE_SIZE)
            if not data:
                return False
            written = self.stream.write(data)
            self._position += written
            self._conversation.written(self._position)
            if written == 0:
                return True  # the node is slow: serve other nodes first
            limit -= written
        return not self._closed
