# SPDX-License-Identifier: Apache-2.0
"""One connection to one agent: sends frames in the order of their urgency, posts what comes as events.

Posts `MessageEvent`s and in the end exactly one `LinkLost`. Reading pauses while too many events wait, so that
a flood stays on the node. Nothing but the agent's first modules is written before it has said `hello`; then comes
the first frame, its other modules before the second, and so on, single frames before the next of a stream. The
threads are those of `Reactor`, which links share.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from launcher.connection.bootstrap import Bootstrap
from launcher.connection.event_queue import is_full
from launcher.connection.protocol import Decoder, Fields, FrameError
from launcher.connection.reactor import Next, Reactor
from launcher.connection.send_queue import Frame, SendQueue
from launcher.text.wrapping import visible

START_LIMIT_S = 30.0  # from the login to the agent's first line
READ_SIZE = 1 << 18
WRITE_SIZE = 1 << 15
TURN_SIZE = 1 << 18  # bytes that are written before others have their turn

_log = logging.getLogger(__name__)


class Stream(Protocol):
    """A byte stream to an agent; `read` and `write` are called by one thread at a time each, `close` from any."""

    @property
    def bootstrap(self) -> Bootstrap:
        """What the agent's interpreter waits for on its standard input."""

    def fileno(self) -> int:
        """A descriptor that is readable while `read` has something to tell."""

    def may_block(self) -> bool:
        """Whether the next `read` may have to wait until the other side takes something."""

    def read(self, limit: int) -> bytes | None:
        """Up to `limit` bytes of what is there, b"" at the end, None when there is nothing now."""

    def write(self, data: bytes) -> int:
        """How much of `data` was taken within a short time; OSError when the other end is gone."""

    def close(self) -> None:
        """End both directions; `read` then tells the end."""

    def end(self) -> str:
        """Why the stream ended, as a sentence; closes it."""


@dataclass(frozen=True)
class MessageEvent:
    """A frame that an agent sent.

    Attributes:
        size: bytes that wait with this event, of frames that came with it too.
    """

    node_id: int
    kind: str
    fields: Fields
    body: bytes
    size: int = 0


@dataclass(frozen=True)
class LinkLost:
    """The last event of a link: after `goodbye`, after `close`, or because something broke.

    Attributes:
        link: the one that is lost; its node may have another one by now.
    """

    node_id: int
    reason: str
    link: Link | None = None


class Link:
    """A running conversation with one agent.

    Args:
        node_id: goes into every event.
        name: the node in messages.
        stream: from ssh.connect or local.connect; the link owns it from now on.
        events: where events go; other links may post there too.
        reactor: the threads; those of its own when left out.
    """

    def __init__(
        self,
        node_id: int,
        name: str,
        stream: Stream,
        events: queue.SimpleQueue[Any],
        reactor: Reactor | None = None,
    ) -> None:
        self.node_id = node_id
        self.name = name
        self._stream = stream
        self._events = events
        self._reactor = Reactor() if reactor is None else reactor
        self._decoder = Decoder(stream.bootstrap.nonce)
        self._start_by = time.monotonic() + START_LIMIT_S
        self._fault = ""
        self._outgoing = SendQueue(stream.bootstrap.first_bytes)
        self._has_greeted = False
        self._closed = False  # by us
        self._is_over = False  # there is nothing more to read
        self._ended = threading.Event()
        self._writing = self._reactor.workers.task(self._write_turn)
        self._shutting = self._reactor.workers.task(self._shut)
        self._read_once_more = self._reactor.watch(self)
        self._reactor.ask(self._writing)

    @property
    def bytes_sent(self) -> int:
        """Bytes of frames that were handed to the stream."""
        return self._outgoing.bytes_sent

    def send(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        """Queue one frame, before those of streams. Never blocks; without effect on a closed link."""
        if self._outgoing.put((kind, fields, body)):
            self._reactor.ask(self._writing)

    def send_stream(self, frames: Iterable[Frame]) -> None:
        """Queue many frames, made one by one when there is room for them.

        The iterable runs on a thread that writes. An error from it ends the link.
        """
        if self._outgoing.put_stream(frames):
            self._reactor.ask(self._writing)

    def post(self, kind: str, **fields: Any) -> None:
        """Put an event where the agent's own messages go; for work on a writing thread that fails."""
        self._events.put(MessageEvent(self.node_id, kind, fields, b""))

    def close(self) -> None:
        """Begin to end the connection, which may take seconds; never blocks. `LinkLost` comes when it has ended."""
        self._closed = True
        self._outgoing.stop()
        self._reactor.ask(self._shutting)

    # What `Reactor` asks for

    def fileno(self) -> int:
        """Readable while there is something to read."""
        return self._stream.fileno()

    def may_block(self) -> bool:
        """Whether the next `read_turn` may have to wait for the other side."""
        return self._stream.may_block()

    def may_go_on(self) -> bool:
        """Whether the events that came were taken."""
        return self._outgoing.is_stopped or not is_full(self._events)

    def waits_until(self) -> float | None:
        """When an agent must have said its first line, as long as it has not."""
        return None if self._decoder.started else self._start_by

    def read_turn(self) -> Next:
        """Post the frames that are there; at the end of the stream, `LinkLost`."""
        if self._ended.is_set():
            return Next.NOTHING
        try:
            data = b"" if self._closed or self._fault or self._is_over else self._stream.read(READ_SIZE)
            if data:
                self._post_frames(data)
            # a login script may go on talking
            if data != b"" and not self._decoder.started and time.monotonic() >= self._start_by:
                raise FrameError(f"no node agent started within {START_LIMIT_S:.0f} s")
        except (FrameError, OSError) as error:
            self._fault = self._fault or str(error)
            data = b""
        except Exception as error:  # noqa: BLE001 - this thread reads from all nodes
            self._fault = self._fault or f"{type(error).__name__}: {error}"
            data = b""
        if data == b"":
            if not self._is_over:
                self._is_over = True
                return Next.TASK  # the node has seconds to say why: others are read meanwhile
            self._tell_end()
            return Next.NOTHING
        return Next.PAUSE if is_full(self._events) else Next.BYTES

    def _post_frames(self, data: bytes) -> None:
        size = len(data)
        for kind, fields, body in self._decoder.feed(data):
            if not self._has_greeted:
                self._has_greeted = True
                self._outgoing.greeted(fields.get("magic"))
                self._reactor.ask(self._writing)
            self._events.put(MessageEvent(self.node_id, kind, fields, body, max(size, len(body))))
            size = 0

    def _tell_end(self) -> None:
        reason = self._fault
        if self._closed and not reason:
            reason = "the link was closed"
        self._outgoing.stop()
        self._reactor.forget(self._stream.fileno())
        ended = self._stream.end()
        if not (self._decoder.started or self._closed):
            reason = reason or "no node agent started"
            if self._decoder.noise:
                reason += f"; the login said {self._decoder.noise!r}"
            if ": " not in ended:  # nothing on its standard error tells why
                reason += "; see what ~/.bashrc does there without a terminal (exit, exec, a wait for input)"
        told = "; ".join(part for part in (reason, ended) if part)
        self._events.put(LinkLost(self.node_id, " | ".join(map(visible, told.splitlines())), self))
        self._ended.set()

    def _shut(self) -> bool:
        self._outgoing.stop()
        self._stream.close()
        self._read_once_more()
        return False

    # Writing

    def _write_turn(self) -> bool:
        """Write for a while; True when there is more."""
        try:
            return self._write(TURN_SIZE)
        except OSError as error:  # reading will meet the end of the stream, and the reason
            _log.debug("%s: writing ended: %s", self.name, error)
            self._outgoing.stop()
        except ValueError as error:
            self._fault = str(error)
            return self._shut()
        except Exception as error:  # noqa: BLE001 - who waits for the node must hear of it
            self._fault = f"{type(error).__name__}: {error}"
            return self._shut()
        return False

    def _write(self, limit: int) -> bool:
        while limit > 0:
            data = self._outgoing.next(WRITE_SIZE)
            if not data:
                return False
            written = self._stream.write(data)
            self._outgoing.took(written)
            if written == 0:
                return True  # the node is slow: others first
            limit -= written
        return True
