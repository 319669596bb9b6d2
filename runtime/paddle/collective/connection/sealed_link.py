# SPDX-License-Identifier: Apache-2.0
"""Sealed links: connections for data between ranks, sealed in pieces where all of them can (see `paddle.sealing`).

Whether they can is said at the meeting, whose connections are encrypted and proven already: nobody between two ranks
can talk them out of it. There ranks get the session too, which is random and in the key: who learns the job's secret
afterwards opens nothing of what was recorded. A link's lane says who called and who was called, to those alone who
have the key; so no link opens to another rank than it was meant for, and none of an earlier attempt opens.
"""

from __future__ import annotations

import hashlib
import select
import socket
from collections.abc import Callable, Sequence

from paddle.collective.connection.stream import Steps, Stream, prepare
from paddle.sealed_stream import Handshake, SealedSink, SealedSource
from paddle.sealing import LANE_BYTES, PIECE, SealError

_KEY_BYTES = 32
_MOST = 2 * PIECE  # of bytes that are sealed at once


def key_of(secret: bytes, session: bytes) -> bytes:
    """Return what all links of a session make their keys from."""
    return hashlib.blake2b(session, key=secret, digest_size=_KEY_BYTES, person=b"links").digest()


def lane_of(key: bytes, caller: int, called: int) -> bytes:
    """Return the lane of one rank's calls to another in a session."""
    said = caller.to_bytes(4, "little") + called.to_bytes(4, "little")
    return hashlib.blake2b(said, key=key, digest_size=LANE_BYTES, person=b"lane").digest()


def sealing(
    sock: socket.socket, key: bytes, lane: bytes = b"", admits: Callable[[bytes], bool] = lambda lane: True
) -> Steps[Stream]:
    """Return the connection, ready for use. The caller ends the steps after `HANDSHAKE_S`.

    Args:
        sock: just connected; closed if this fails or is ended.
        key: see `key_of`.
        lane: of the side that calls; who is called has none.
        admits: tells who is called whether it expects a lane.

    Raises:
        WireError: the other end is no rank that this link is meant for.
        OSError: the connection broke.
    """
    prepare(sock)
    try:
        handshake = Handshake(sock, key, lane, admits)
        while not handshake.go_on():
            yield select.POLLIN
    except BaseException:
        sock.close()
        raise
    return SealedLink(sock, handshake.source, handshake.sink)


class SealedLink(Stream):
    """A `Stream` whose bytes are sealed. Not thread-safe."""

    def __init__(self, sock: socket.socket, source: SealedSource, sink: SealedSink) -> None:
        super().__init__(sock)
        self._source, self._sink = source, sink
        self._underway = 0  # bytes that were given to be sent, and are not sent as a whole

    def send_some(self, views: Sequence[memoryview]) -> int:
        """See `Stream.send_some`: what was sealed is sent before 1 byte of it counts."""
        try:
            if self._underway:
                self._sink.flush()
            elif parts := _first(views, _MOST):
                self._underway = sum(map(len, parts))
                self._sink.put(parts)
        except SealError as error:
            raise ConnectionAbortedError(str(error)) from None
        if len(self._sink):
            return 0
        sent, self._underway = self._underway, 0
        return sent

    def take_some(self, view: memoryview) -> int:
        """See `Stream.take_some`."""
        try:
            return self._source.receive(view) if len(view) else 0
        except SealError as error:
            raise ConnectionAbortedError(str(error)) from None


def _first(views: Sequence[memoryview], most: int) -> list[memoryview]:
    """Return the beginning of what these views have, at most so many bytes."""
    found = []
    for view in views:
        if most and view:
            found.append(view[:most])
            most -= len(found[-1])
    return found
