# SPDX-License-Identifier: Apache-2.0
"""One connection to one agent: sends frames in the order of their urgency, posts what comes as events.

Posts `MessageEvent`s and in the end exactly one `LinkLost`. Reading pauses while too many events wait, so that
a flood stays on the node. Nothing but the agent's first modules is written before it has said `hello`; then comes
the first frame, its other modules before the second, and so on, single frames before the next of a stream. The
threads are those of `Wires`, which links share.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from launcher.bootstrap import Bootstrap, packed_agent
from launcher.events import is_full
from launcher.protocol import Decoder, Fields, FrameError, encode
from launcher.wires import Next, Wires

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


Frame = tuple[str, Fields, bytes]


class Link:
    """A running conversation with one agent.

    Args:
        node_id: goes into every event.
        name: the node in messages.
        stream: from ssh.connect or local.connect; the link owns it from now on.
        events: where events go; other links may post there too.
        wires: the threads; those of its own when left out.
    """

    def __init__(
        self,
        node_id: int,
        name: str,
        stream: Stream,
        events: queue.SimpleQueue[Any],
        wires: Wires | None = None,
    ) -> None:
        self.node_id = node_id
        self.name = name
        self._stream = stream
        self._events = events
        self._wires = Wires() if wires is None else wires
        self._decoder = Decoder(stream.bootstrap.nonce)
        self._start_by = time.monotonic() + START_LIMIT_S
        self._bytes_sent = 0
        self._fault = ""
        self._lock = threading.Lock()
        self._urgent: deque[Frame] = deque()
        self._streams: deque[Iterator[Frame]] = deque()
        self._outgoing = memoryview(stream.bootstrap.payload)
        self._is_greeting = True  # what goes out is no frame of a job
        self._magic: object = None
        self._has_greeted = False
        self._frames_out = 0
        self._closing = False  # nothing more is sent
        self._closed = False  # by us
        self._is_over = False  # there is nothing more to read
        self._ended = threading.Event()
        self._writing = self._wires.lanes.lane(self._write_turn)
        self._shutting = self._wires.lanes.lane(self._shut)
        self._read_once_more = self._wires.watch(self)
        self._wires.ask(self._writing)

    @property
    def bytes_sent(self) -> int:
        """Bytes of frames that were handed to the stream."""
        return self._bytes_sent

    def send(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        """Queue one frame, before those of streams. Never blocks; without effect on a closed link."""
        with self._lock:
            if self._closing:
                return
            self._urgent.append((kind, fields, body))
        self._wires.ask(self._writing)

    def send_stream(self, frames: Iterable[Frame]) -> None:
        """Queue many frames, made one by one when there is room for them.

        The iterable runs on a thread that writes. An error from it ends the link.
        """
        with self._lock:
            if self._closing:
                return
            self._streams.append(iter(frames))
        self._wires.ask(self._writing)

    def post(self, kind: str, **fields: Any) -> None:
        """Put an event where the agent's own messages go; for work on a writing thread that fails."""
        self._events.put(MessageEvent(self.node_id, kind, fields, b""))

    def close(self) -> None:
        """Begin to end the connection, which may take seconds; never blocks. `LinkLost` comes when it has ended."""
        self._closed = True
        self._stop_sending()
        self._wires.ask(self._shutting)

    # What `Wires` asks for

    def fileno(self) -> int:
        """Readable while there is something to read."""
        return self._stream.fileno()

    def may_block(self) -> bool:
        """Whether the next `read_turn` may have to wait for the other side."""
        return self._stream.may_block()

    def may_go_on(self) -> bool:
        """Whether the events that came were taken."""
        return self._closing or not is_full(self._events)

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
                return Next.LANE  # the node has seconds to say why: others are read meanwhile
            self._tell_end()
            return Next.NOTHING
        return Next.PAUSE if is_full(self._events) else Next.BYTES

    def _post_frames(self, data: bytes) -> None:
        size = len(data)
        for kind, fields, body in self._decoder.feed(data):
            if not self._has_greeted:
                self._magic = fields.get("magic")
                self._has_greeted = True
                self._wires.ask(self._writing)
            self._events.put(MessageEvent(self.node_id, kind, fields, body, max(size, len(body))))
            size = 0

    def _tell_end(self) -> None:
        reason = self._fault
        if self._closed and not reason:
            reason = "the link was closed"
        self._stop_sending()
        self._wires.forget(self._stream.fileno())
        ended = self._stream.end()
        if not (self._decoder.started or self._closed):
            reason = reason or "no node agent started"
            if self._decoder.noise:
                reason += f"; the login said {self._decoder.noise!r}"
            if ": " not in ended:  # nothing on its standard error tells why
                reason += "; see what ~/.bashrc does there without a terminal (exit, exec, a wait for input)"
        self._events.put(LinkLost(self.node_id, "; ".join(part for part in (reason, ended) if part), self))
        self._ended.set()

    def _shut(self) -> bool:
        self._stop_sending()
        self._stream.close()
        self._read_once_more()
        return False

    def _stop_sending(self) -> None:
        with self._lock:
            self._closing = True
            self._urgent.clear()
            self._streams.clear()

    # Writing

    def _write_turn(self) -> bool:
        """Write for a while; True when there is more."""
        try:
            return self._write(TURN_SIZE)
        except OSError as error:  # reading will meet the end of the stream, and the reason
            _log.debug("%s: writing ended: %s", self.name, error)
            self._stop_sending()
        except ValueError as error:
            self._fault = str(error)
            return self._shut()
        except Exception as error:  # noqa: BLE001 - who waits for the node must hear of it
            self._fault = f"{type(error).__name__}: {error}"
            return self._shut()
        return False

    def _write(self, limit: int) -> bool:
        while limit > 0:
            if self._closing:
                return False
            if not self._outgoing:
                self._outgoing = memoryview(self._next_bytes())
                if not self._outgoing:
                    return False
            written = self._stream.write(bytes(self._outgoing[:WRITE_SIZE]))
            if not self._is_greeting:
                self._bytes_sent += written
            if written == 0:
                return True  # the node is slow: others first
            self._outgoing = self._outgoing[written:]
            limit -= written
        return True

    def _next_bytes(self) -> bytes:
        """The next frame, or several small ones: a write for each would cost more than they do."""
        if not self._has_greeted:
            return b""
        self._is_greeting = False
        parts: list[bytes] = []
        size = 0
        while size < WRITE_SIZE and (frame := self._next_frame()) is not None:
            if self._frames_out == 1:
                parts.append(encode("modules", {}, packed_agent().rest_for(self._magic)))
            self._frames_out += 1
            parts.append(encode(*frame))
            size += len(parts[-1])
        return b"".join(parts)

    def _next_frame(self) -> Frame | None:
        """None when there is nothing to send, or the link was closed."""
        while True:
            with self._lock:
                if self._urgent:
                    return self._urgent.popleft()
                if not self._streams:
                    return None
                stream = self._streams[0]
            frame = next(stream, None)
            if frame is not None:
                return frame
            with self._lock:
                if self._streams and self._streams[0] is stream:
                    self._streams.popleft()
