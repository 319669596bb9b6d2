# SPDX-License-Identifier: Apache-2.0
"""Sends and receives messages on a byte stream, plain or sealed; large arrays are transferred in place.

    connection, trainer to server:  token 16s | packet | packet | ...       the token is valid once: see `tcp`
    connection, server to trainer:  packet | packet | ...

    packet:  header bytes I | frames H | bytes Q of each frame | header | frames        (little-endian)

No marker begins a packet: the bytes after an unreadable packet cannot be interpreted, so the connection is closed, and
pending messages are requested again over the base. Neither end blocks: remaining bytes are transferred when the socket
is ready. Lengths are checked before anything is allocated; memory is touched only as bytes arrive.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeAlias

import numpy as np

from paddle.errors import WireError
from paddle.pserver.wire.arithmetic import AT_ONCE_BYTES, SMALL_BYTES, Findings
from paddle.pserver.wire.arrival import Arrival, ReusedMemory
from paddle.pserver.wire.codec import encode, is_part
from paddle.pserver.wire.message import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    MAX_SECTIONS,
    Frame,
    Message,
)
from paddle.sealed_stream import SealedSink, SealedSource
from paddle_node.linux.inet import keep_alive

Place = Callable[[bytes], memoryview | None]
"""Returns where the only array of a message belongs, by its header; None: anywhere."""

_PREFIX = struct.Struct("<IH")
_ONE_LENGTH = struct.Struct("<Q")
_BEFORE_CHUNK = struct.Struct("<IHQ")
_BUFFER = 16 << 10
_BEFORE_LARGE = 256
_MAX_PARTS = 256  # in one system call
_MAX_QUEUE = 256
# While more than this is missing from an array, waking up for less costs more than it saves.
_WAKE_FOR = 256 << 10
# A connection that delivers no data is closed after about the same time as ZeroMQ's connections.
_KEEP_ALIVE = {"idle_s": 5, "pause_s": 2, "count": 3, "unsent_ms": 10_000}
# Within one machine no queue needs managing: pacing, as in bbr, would only split transfers.
_WITHIN_MACHINE = b"reno"


def prepare(sock: socket.socket) -> None:
    """Set the options of a stream's socket, which both ends use: non-blocking, without delay, with keepalives."""
    sock.setblocking(False)
    with contextlib.suppress(AttributeError, OSError):  # elsewhere than on Linux
        keep_alive(sock, **_KEEP_ALIVE)
        if sock.getsockname()[0] == sock.getpeername()[0]:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _WITHIN_MACHINE)


class PlainSource:
    """A source of the bytes that a socket receives, unchanged; compare `SealedSource`.

    Attributes:
        descriptor: descriptor of the socket, if it has exactly these bytes; None means they are derived from the
            received bytes.
        has_more: whether there may be bytes that were already read from the socket, which polling does not report.
    """

    has_more = False

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.descriptor = sock, sock.fileno()
        self._awaited = 1

    def receive(self, into: memoryview) -> int:
        """Write available bytes to `into`; return their number, 0 if none are available now.

        Raises:
            ConnectionError: the connection is closed.
        """
        try:
            count = self._sock.recv_into(into)
        except BlockingIOError:
            return 0
        if not count:
            raise ConnectionResetError("closed")
        return count

    def wake_for(self, count: int) -> None:
        """Make the socket report data once this number of bytes is available, or the connection is closed."""
        if count != self._awaited:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._awaited = count


class PlainSink:
    """A sink that sends bytes on a socket, unchanged; compare `SealedSink`."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._parts: deque[memoryview] = deque()

    def __len__(self) -> int:
        """Return the number of parts that are not sent completely."""
        return len(self._parts)

    def put(self, parts: list[Frame]) -> bool:
        """Send a message's parts, or as much as the socket accepts; they must not change until all are sent.

        Returns:
            Whether everything was sent.

        Raises:
            OSError: the connection is closed.
        """
        sent = 0
        if not self._parts:
            try:
                sent = self._sock.send(parts[0]) if len(parts) == 1 else self._sock.sendmsg(parts)
            except BlockingIOError:
                sent = 0
        if sent < sum(map(len, parts)):
            self._parts.extend(map(memoryview, parts))
            self._drop(sent)
        return not self._parts

    def flush(self) -> None:
        """Send as much as the socket accepts. Raises OSError if the connection is closed."""
        with contextlib.suppress(BlockingIOError):
            while self._parts:
                self._drop(self._sock.sendmsg(list(islice(self._parts, _MAX_PARTS))))

    def _drop(self, sent: int) -> None:
        """Remove the bytes that were sent."""
        while self._parts and sent >= len(self._parts[0]):
            sent -= len(self._parts.popleft())
        if sent:
            self._parts[0] = self._parts[0][sent:]


ByteSource: TypeAlias = PlainSource | SealedSource
ByteSink: TypeAlias = PlainSink | SealedSink


class StreamReader:
    """A reader of messages from a byte stream. Not thread-safe.

    Attributes:
        found: the properties of the last message's only array, or None.
    """

    def __init__(self, source: ByteSource, place: Place = lambda header: None) -> None:
        self._source, self._place = source, place
        self._buffer = np.empty(_BUFFER, np.uint8).data
        self._start = self._stop = 0
        self._lengths: Sequence[int] | None = None  # of the message that is being read
        self._frames: list[Frame] = []
        self._array: memoryview | None = None
        self._got = 0
        self._arrival: Arrival | None = None
        self._memory = ReusedMemory()
        self._was_large = self._is_streaming = False  # as the last array was; large chunks follow each other
        self.found: Findings | None = None

    @property
    def has_more(self) -> bool:
        """Return whether another message may have arrived that polling the socket does not report."""
        return self._start < self._stop or self._is_streaming or self._source.has_more

    def read(self) -> list[Frame] | None:
        """Return the frames of the next message, or None if it is incomplete; does not block.

        Raises:
            ConnectionError: the connection is closed.
            WireError: the bytes do not follow the protocol.
        """
        while self._lengths is None:
            if self._start < self._stop:
                if (small := self._small()) is not None:
                    return small
                if self._begin():
                    break
            if not self._fill():
                return None
        assert self._lengths is not None
        while len(self._frames) <= len(self._lengths):
            if not self._read_array(self._lengths[len(self._frames) - 1]):
                return None
        frames, self._frames, self._lengths = self._frames, [], None
        return frames

    def take(self, count: int) -> bytes | None:
        """Return the first `count` bytes of the connection, or None if they have not all arrived; does not block."""
        while self._stop - self._start < count:
            if not self._fill():
                return None
        return self._taken(count)

    def _small(self) -> list[Frame] | None:
        """Return the next message if it has one small array and is complete; this is the common case in most steps."""
        at, stop, buffer = self._start, self._stop, self._buffer
        if stop - at < _BEFORE_CHUNK.size:
            return None
        header_bytes, count, length = _BEFORE_CHUNK.unpack_from(buffer, at)
        middle = at + _BEFORE_CHUNK.size + header_bytes
        end = middle + length
        if count != 1 or end > stop or not header_bytes:
            return None
        self._start = end
        self.found, self._was_large, self._is_streaming = None, False, False
        return [buffer[middle - header_bytes : middle].tobytes(), buffer[middle:end].tobytes()]

    def _begin(self) -> bool:
        """Read the part before the arrays; return False if it is incomplete."""
        here = self._stop - self._start
        if here < _PREFIX.size:
            return False
        header_bytes, count = _PREFIX.unpack_from(self._buffer, self._start)
        if not 0 < header_bytes <= MAX_HEADER_BYTES or count > MAX_SECTIONS:
            raise WireError(
                f"invalid message: its header has {header_bytes} bytes and announces {count} arrays"
            )
        before = _PREFIX.size + 8 * count
        if here < before + header_bytes:
            self._reserve(before + header_bytes)
            return False
        at = self._start + _PREFIX.size
        lengths: Sequence[int] = (
            _ONE_LENGTH.unpack_from(self._buffer, at)
            if count == 1
            else struct.unpack_from(f"<{count}Q", self._buffer, at)
        )
        if count and max(lengths) > MAX_FRAME_BYTES:
            raise WireError(f"an array has {max(lengths)} bytes; expected at most {MAX_FRAME_BYTES}")
        self._taken(before)
        self._lengths, self._frames, self.found = lengths, [self._taken(header_bytes)], None
        return True

    def _read_array(self, length: int) -> bool:
        if self._array is None:
            is_only = len(self._lengths or ()) == 1
            place = self._place(bytes(self._frames[0])) if is_only else None
            if place is None or len(place) != length:
                is_large = length >= AT_ONCE_BYTES
                place = self._memory.take(length) if is_large else np.empty(length, np.uint8).data
            self._array, self._got = place, min(length, self._stop - self._start)
            place[: self._got] = self._buffer[self._start : self._start + self._got]
            self._start += self._got
            self._arrival = Arrival.begin(place) if is_only else None
        while self._got < length:
            if self._arrival is not None and self._source.descriptor is not None:
                self._got, behind = self._arrival.receive(self._source.descriptor, self._got, self._buffer)
                self._start, self._stop = 0, behind
                if self._got == length:
                    break
            count = self._source.receive(self._array[self._got :] if self._got else self._array)
            if not count:
                self._source.wake_for(min(length - self._got, _WAKE_FOR))
                return False
            self._got += count
            if self._arrival is not None:
                self._arrival.inspect_received(self._got)
        self._source.wake_for(1)
        self._was_large = length >= AT_ONCE_BYTES
        self._is_streaming = self._was_large and is_part(self._frames[0])
        self.found = self._arrival.findings if self._arrival is not None else None
        self._frames.append(self._array)
        self._array = self._arrival = None
        return True

    def _fill(self) -> int:
        if self._start == self._stop:
            self._start = self._stop = 0
        elif self._stop == len(self._buffer):
            self._reserve(len(self._buffer))
        # Most of a large array is to arrive in its place, so the buffer takes hardly more than the header before it.
        stop = self._stop + _BEFORE_LARGE if self._was_large else len(self._buffer)
        count = self._source.receive(self._buffer[self._stop : stop])
        self._was_large = self._was_large and not count
        self._stop += count
        return count

    def _reserve(self, count: int) -> None:
        """Make room for `count` bytes from the first byte that was not taken."""
        rest = bytes(self._buffer[self._start : self._stop])
        if count > len(self._buffer):
            self._buffer = np.empty(count, np.uint8).data
        self._start, self._stop = 0, len(rest)
        self._buffer[: len(rest)] = rest

    def _taken(self, count: int) -> bytes:
        self._start += count
        return bytes(self._buffer[self._start - count : self._start])


class StreamWriter:
    """A writer of messages to a byte stream. Not thread-safe.

    Attributes:
        is_empty: whether everything was sent.
    """

    def __init__(self, sink: ByteSink) -> None:
        self._sink = sink
        self.is_empty = True

    def put(self, message: Message) -> bool:
        """Send a message, or as much as the socket accepts; its arrays must not change until `is_empty`.

        Returns:
            False, without sending, if too much data is already waiting.

        Raises:
            OSError: the connection is closed.
        """
        if not self.is_empty and len(self._sink) > _MAX_QUEUE:
            return False
        self.is_empty = self._sink.put(_packet(message))
        return True

    def flush(self) -> None:
        """Send as much as the socket accepts. Raises OSError if the connection is closed."""
        self._sink.flush()
        self.is_empty = not len(self._sink)


def _packet(message: Message) -> list[Frame]:
    """Return the parts of a message on the wire; none is empty."""
    header, *arrays = encode(message)
    if len(arrays) == 1 and (length := len(arrays[0])):
        before = _BEFORE_CHUNK.pack(len(header), 1, length)
        if length < SMALL_BYTES:
            return [b"".join((before, header, arrays[0]))]
        return [before + header, arrays[0]]
    lengths = struct.pack(f"<{len(arrays)}Q", *map(len, arrays))
    return [_PREFIX.pack(len(header), len(arrays)) + lengths + header, *filter(len, arrays)]
