# SPDX-License-Identifier: Apache-2.0
"""Data connections between nodes: each node's first rank connects to its ring neighbors and its doubling partners.

The lower rank of a pair connects to the higher rank's endpoint, so that no additional port is needed.

These links are sealed in pieces (see `paddle.sealing`) if all ranks support it. Ranks agree on that at the rendezvous,
whose connections are already encrypted and authenticated, so a man in the middle cannot downgrade them. The rendezvous
also distributes the random session ID, which is part of the key: a secret of the job that leaks later does not decrypt
recorded traffic. A link's token names the caller and the called rank and can be checked only with the key, so a link
reaches only the intended rank, and links of an earlier attempt are refused.
"""

from __future__ import annotations

import hashlib
import select
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial

from paddle.collective.connection.calls import Callers, call
from paddle.collective.connection.rendezvous import Met
from paddle.collective.connection.stream import UNSENT_S, Greet, Steps, Stream, prepare
from paddle.collective.errors import PeerLate
from paddle.collective.membership import Membership
from paddle.sealed_stream import Handshake, SealedSink, SealedSource
from paddle.sealing import PIECE, TOKEN_BYTES, SealError
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.records import Rank

_TRIES = 4  # attempts per call, since unauthenticated peers may block a partner's listener
_KEY_BYTES = 32
_MOST = 2 * PIECE  # maximum bytes that are sealed at one time


class _Call(NamedTuple):
    """The first record that a connecting rank sends."""

    rank: Rank
    session: str


class _CallAccepted(NamedTuple):
    """The answer to an accepted `_Call`."""


def partners(place: int, count: int) -> set[int]:
    """Return the positions (from 0) of a node's partners among `count` nodes: ring neighbors and doubling partners."""
    power = 1 << (count.bit_length() - 1)
    found = {(place + 1) % count, (place - 1) % count}
    if place >= power:
        found.add(place - power)
    else:
        if place + power < count:
            found.add(place + power)
        found.update(place ^ 1 << bit for bit in range(power.bit_length() - 1))
    return found - {place}


def connected(
    me: Membership, ranks: Sequence[int], met: Met, listener: socket.socket | None
) -> dict[int, Stream]:
    """Return an open data connection to each partner of this node, by rank.

    Args:
        ranks: the first rank of each node, including this one.
        met: the result of the rendezvous; a caller with another session belongs to an earlier attempt.
        listener: where this rank accepts connections; None for the lowest rank.

    Raises:
        CollectiveError: a partner cannot be reached, or does not connect.
    """
    mesh = _Mesh(me, met)
    wanted = {ranks[place] for place in partners(ranks.index(me.rank), len(ranks))}
    higher = sorted(rank for rank in wanted if rank > me.rank)
    try:
        for rank in higher:
            mesh.call(rank)
        if lower := {rank for rank in wanted if rank < me.rank}:
            assert listener is not None
            mesh.take_calls(listener, lower)
        for rank in higher:
            mesh.await_accepted(rank)
        # A rank that is late for a sum receives nothing, which to the kernel looks like a lost rank. The rendezvous
        # connections report lost ranks.
        for stream in mesh.streams.values():
            prepare(stream.sock, max(me.timeout_s, UNSENT_S))
    except BaseException:
        for stream in mesh.streams.values():
            stream.close()
        raise
    return mesh.streams


class _Mesh:
    """Establishes the connections of one rank; `streams` holds those established so far."""

    def __init__(self, me: Membership, met: Met) -> None:
        self.streams: dict[int, Stream] = {}
        self._me, self._session = me, met.session.hex()
        self._deadline = time.monotonic() + me.timeout_s
        self._key = key_of(me.secret, met.session) if me.secret is not None and met.seals else None

    def call(self, rank: int) -> None:
        greet: Greet | None = None
        if self._key is not None:
            greet = partial(sealing, key=self._key, token=token_of(self._key, self._me.rank, rank))
        self.streams[rank] = call(self._me, rank, self._deadline, greet)
        self.streams[rank].send_note(_Call(self._me.rank, self._session), self._deadline)

    def await_accepted(self, rank: int) -> None:
        """Wait until a partner confirms the connection; connect again if unauthenticated connections displaced it."""
        for _ in range(_TRIES):
            try:
                self.streams[rank].take_note(_CallAccepted, self._deadline)
                return
            except TimeoutError:
                break
            except OSError:
                self.streams[rank].close()
                self.call(rank)
        raise self._late(rank, "did not accept this rank's connection")

    def take_calls(self, listener: socket.socket, lower: set[int]) -> None:
        greet: Greet | None = None
        if self._key is not None:
            tokens = {token_of(self._key, rank, self._me.rank) for rank in lower}
            greet = partial(sealing, key=self._key, admits=tokens.__contains__)
        with Callers(self._me, listener, self._deadline, _Call, greet) as callers:
            while missing := lower - self.streams.keys():
                absent = min(missing)
                caller = callers.next(partial(self._me.name, absent))
                if caller is None:
                    raise self._late(absent, "did not connect")
                stream, hello = caller
                if hello.session != self._session or hello.rank not in missing:
                    stream.close()
                else:
                    self.streams[hello.rank] = stream
                    stream.send_note(_CallAccepted(), self._deadline)

    def _late(self, rank: int, what: str) -> PeerLate:
        return PeerLate(f"{self._me.name(rank)} {what} within {self._me.timeout_s:g} s", rank)


def key_of(secret: bytes, session: bytes) -> bytes:
    """Return the key of a session, derived from the job's secret, from which all links derive theirs."""
    return hashlib.blake2b(session, key=secret, digest_size=_KEY_BYTES, person=b"links").digest()


def token_of(key: bytes, caller: int, called: int) -> bytes:
    """Return the token with which one rank identifies its connections to another rank in a session."""
    said = caller.to_bytes(4, "little") + called.to_bytes(4, "little")
    return hashlib.blake2b(said, key=key, digest_size=TOKEN_BYTES, person=b"lane").digest()


def sealing(
    sock: socket.socket, key: bytes, token: bytes = b"", admits: Callable[[bytes], bool] = lambda token: True
) -> Steps[Stream]:
    """Set up a sealed link; a generator for `stream.finish` that returns the `SealedLink`.

    The caller must stop the generator after `HANDSHAKE_S`.

    Args:
        sock: a new connection; closed if the handshake fails or is stopped.
        key: the session's key; see `key_of`.
        token: given by the connecting side only.
        admits: given by the accepting side only: returns whether it expects a token.

    Raises:
        WireError: the other end is not the rank that this link is meant for.
        OSError: the connection broke.
    """
    prepare(sock)
    try:
        handshake = Handshake(sock, key, token, admits)
        while not handshake.advance():
            yield select.POLLIN
    except BaseException:
        sock.close()
        raise
    return SealedLink(sock, handshake.source, handshake.sink)


class SealedLink(Stream):
    """A `Stream` over which bytes are encrypted in pieces. Not thread-safe."""

    def __init__(self, sock: socket.socket, source: SealedSource, sink: SealedSink) -> None:
        super().__init__(sock)
        self._source, self._sink = source, sink
        self._underway = 0  # bytes accepted for sending that are not sent completely

    def send_some(self, views: Sequence[memoryview]) -> int:
        """Encrypt and send a prefix of these bytes; return its length.

        Bytes count as sent once the whole sealed piece that contains them has been sent.

        Raises:
            ConnectionError: the rank has exited or is unreachable.
        """
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
        """Receive and decrypt bytes into the beginning of a buffer; see `Stream.take_some` for results and errors."""
        try:
            return self._source.receive(view) if len(view) else 0
        except SealError as error:
            raise ConnectionAbortedError(str(error)) from None


def _first(views: Sequence[memoryview], most: int) -> list[memoryview]:
    """Return at most the given number of bytes from the beginning of these views."""
    found = []
    for view in views:
        if most and view:
            found.append(view[:most])
            most -= len(found[-1])
    return found
