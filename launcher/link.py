# SPDX-License-Identifier: Apache-2.0
"""One connection to one agent: sends frames in the order of their urgency, posts what comes as events.

Two daemon threads a link. The reader posts `MessageEvent`s and in the end exactly one `LinkLost`; it stops
reading while too many events wait, so that a flood stays on the node. The writer sends single frames before
the next frame of a stream.
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

from launcher.bootstrap import Bootstrap
from launcher.protocol import Decoder, Fields, FrameError, encode

START_LIMIT_S = 30.0  # from the login to the agent's first line
READ_SIZE = 1 << 18
WRITE_SIZE = 1 << 15
READ_TURN_S = 0.5
JOIN_S = 3.0
EVENTS_LIMIT = 1024
EVENTS_PAUSE_S = 0.02

_log = logging.getLogger(__name__)


class Stream(Protocol):
    """A byte stream to an agent; `read` and `write` are called from one thread each, `close` from any."""

    @property
    def bootstrap(self) -> Bootstrap:
        """What the agent's interpreter waits for on its standard input."""

    def read(self, limit: int, timeout_s: float) -> bytes:
        """Up to `limit` bytes, b"" at the end; TimeoutError when nothing came."""

    def write(self, data: bytes) -> None:
        """All of `data`; OSError when the other end is gone."""

    def close(self) -> None:
        """End both directions; `read` and `write` return soon."""

    def end(self) -> str:
        """Why the stream ended, as a sentence; closes it."""


@dataclass(frozen=True)
class MessageEvent:
    """A frame that an agent sent."""

    node_id: int
    kind: str
    fields: Fields
    body: bytes


@dataclass(frozen=True)
class LinkLost:
    """The last event of a link: after `goodbye`, after `close`, or because something broke."""

    node_id: int
    reason: str


Frame = tuple[str, Fields, bytes]


class Link:
    """A running conversation with one agent.

    Args:
        node_id: goes into every event.
        name: the node in messages and thread names.
        stream: from ssh.connect or local.connect; the link owns it from now on.
        events: where events go; other links may post there too.
    """

    def __init__(self, node_id: int, name: str, stream: Stream, events: queue.SimpleQueue[Any]) -> None:
        self.node_id = node_id
        self.name = name
        self._stream = stream
        self._events = events
        self._bytes_sent = 0
        self._fault = ""
        self._wake = threading.Condition()
        self._urgent: deque[Frame] = deque()
        self._streams: deque[Iterator[Frame]] = deque()
        self._closing = threading.Event()
        self._closed = threading.Event()
        self._reader = threading.Thread(target=self._read, name=f"read {name}", daemon=True)
        self._writer = threading.Thread(target=self._write, name=f"write {name}", daemon=True)
        self._reader.start()
        self._writer.start()

    @property
    def bytes_sent(self) -> int:
        """Bytes of frames that were handed to the stream."""
        return self._bytes_sent

    def send(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        """Queue one frame, before those of streams. Never blocks; without effect on a closed link."""
        with self._wake:
            if not self._closing.is_set():
                self._urgent.append((kind, fields, body))
                self._wake.notify()

    def send_stream(self, frames: Iterable[Frame]) -> None:
        """Queue many frames, made one by one when there is room for them.

        The iterable runs on the writer's thread. An OSError or ValueError from it ends the link.
        """
        with self._wake:
            if not self._closing.is_set():
                self._streams.append(iter(frames))
                self._wake.notify()

    def post(self, kind: str, **fields: Any) -> None:
        """Put an event where the agent's own messages go; for work on the writer's thread that fails."""
        self._events.put(MessageEvent(self.node_id, kind, fields, b""))

    def close(self) -> None:
        """End the connection; returns when both threads ended, or after JOIN_S."""
        self._closed.set()
        self._shut()
        for thread in (self._writer, self._reader):
            if thread is not threading.current_thread():
                thread.join(JOIN_S)

    def _shut(self) -> None:
        self._stop_sending()
        self._stream.close()

    def _stop_sending(self) -> None:
        with self._wake:
            self._closing.set()
            self._urgent.clear()
            self._streams.clear()
            self._wake.notify()

    def _write(self) -> None:
        try:
            self._stream.write(self._stream.bootstrap.payload)
            while (data := self._next_bytes()) is not None:
                self._stream.write(data)
                self._bytes_sent += len(data)
        except OSError as error:  # the reader will see the end of the stream, and the reason
            _log.debug("%s: writing ended: %s", self.name, error)
            self._stop_sending()
        except ValueError as error:
            self._fault = str(error)
            self._shut()

    def _next_bytes(self) -> bytes | None:
        """The next frame, or several small ones: a write for each would cost more than they do."""
        parts: list[bytes] = []
        size = 0
        while size < WRITE_SIZE:
            frame = self._next_frame(wait=not parts)
            if frame is None:
                break
            parts.append(encode(*frame))
            size += len(parts[-1])
        return b"".join(parts) if parts else None

    def _next_frame(self, wait: bool) -> Frame | None:
        """None when the link was closed or, without waiting, when there is nothing to send."""
        while True:
            with self._wake:
                while wait and not (self._urgent or self._streams or self._closing.is_set()):
                    self._wake.wait()
                if self._closing.is_set():
                    return None
                if self._urgent:
                    return self._urgent.popleft()
                if not self._streams:
                    return None
                stream = self._streams[0]
            frame = next(stream, None)
            if frame is not None:
                return frame
            with self._wake:
                if self._streams and self._streams[0] is stream:
                    self._streams.popleft()

    def _read(self) -> None:
        decoder = Decoder(self._stream.bootstrap.nonce)
        reason = ""
        try:
            reason = self._read_frames(decoder)
        except (FrameError, OSError) as error:
            reason = str(error)
        reason = reason or self._fault
        if self._closed.is_set() and not reason:
            reason = "the link was closed"
        self._stop_sending()
        ended = self._stream.end()
        if not (decoder.started or self._closed.is_set()):
            reason = reason or "no node agent started"
            if decoder.noise:
                reason += f"; the login said {decoder.noise!r}"
            if ": " not in ended:  # nothing on its standard error tells why
                reason += "; see what ~/.bashrc does there without a terminal (exit, exec, a wait for input)"
        self._events.put(LinkLost(self.node_id, "; ".join(part for part in (reason, ended) if part)))

    def _read_frames(self, decoder: Decoder) -> str:
        """Post frames until the stream ends; returns what was wrong, or nothing."""
        waited_s = 0.0
        start_by = time.monotonic() + START_LIMIT_S
        while True:
            # a login script may go on talking
            if not decoder.started and time.monotonic() >= start_by:
                return f"no node agent started within {START_LIMIT_S:.0f} s"
            try:
                data = self._stream.read(READ_SIZE, READ_TURN_S)
            except TimeoutError:
                waited_s += READ_TURN_S
                if self._closing.is_set() and waited_s >= JOIN_S:
                    return ""
                continue
            waited_s = 0.0
            if not data:
                return ""
            for kind, fields, body in decoder.feed(data):
                self._events.put(MessageEvent(self.node_id, kind, fields, body))
            while self._events.qsize() > EVENTS_LIMIT and not self._closing.wait(EVENTS_PAUSE_S):
                pass
