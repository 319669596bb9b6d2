# SPDX-License-Identifier: Apache-2.0
"""Connections for data between nodes: of each node's first rank with its neighbours in the ring and its partners.

Of two ranks the lower one calls the higher one at that one's endpoint, so that no other port is ever used.

Where all ranks can, these links are sealed in pieces (see `paddle.sealing`). Whether they can is said at the meeting,
whose connections are encrypted and proven already: a man in the middle cannot talk two ranks out of it. There ranks get
the session too, which is random and in the key: who learns the job's secret afterwards opens nothing of what was
recorded. A link's token names caller and called side, to those alone who have the key; so no link opens to another rank
than it was meant for, and none of an earlier attempt opens.
"""

from __future__ import annotations

import hashlib
import select
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from paddle.collective.connection.calls import Callers, call
from paddle.collective.connection.rendezvous import Met
from paddle.collective.connection.stream import Greet, Steps, Stream, prepare
from paddle.collective.errors import PeerLate
from paddle.collective.membership import Membership
from paddle.sealed_stream import Handshake, SealedSink, SealedSource
from paddle.sealing import PIECE, TOKEN_BYTES, SealError
from paddle_node.contract.records import Rank

_TRIES = 4  # of a call that strangers at a partner's door may cost
_KEY_BYTES = 32
_MOST = 2 * PIECE  # of bytes that are sealed at once


class _Call(NamedTuple):
    """The first note of a rank that calls."""

    rank: Rank
    session: str


class _Taken(NamedTuple):
    """What it is answered once its call was taken."""


def partners(place: int, count: int) -> set[int]:
    """Return the places that one of `count` exchanges data with: both neighbours, and those of recursive doubling."""
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
    """Return a connection with each partner.

    Args:
        ranks: the first rank of each node, this one's among them.
        met: what the meeting came to; whoever calls with another session is of an earlier attempt.
        listener: where this rank is called; None for the lowest.

    Raises:
        CollectiveError: a partner cannot be reached, or does not call.
    """
    deadline = time.monotonic() + me.timeout_s
    wanted = {ranks[place] for place in partners(ranks.index(me.rank), len(ranks))}
    streams: dict[int, Stream] = {}
    try:
        higher = sorted(rank for rank in wanted if rank > me.rank)
        for rank in higher:
            streams[rank] = _called(me, rank, met, deadline)
        lower = {rank for rank in wanted if rank < me.rank}
        if lower:
            assert listener is not None
            with Callers(me, listener, deadline, _Call, _greet_callers(me, met, lower)) as callers:
                _take_calls(me, met, callers, lower, streams, deadline)
        for rank in higher:
            streams[rank] = _taken(me, rank, met, streams[rank], deadline)
    except BaseException:
        for stream in streams.values():
            stream.close()
        raise
    return streams


def _called(me: Membership, rank: int, met: Met, deadline: float) -> Stream:
    stream = call(me, rank, deadline, _greet_called(me, met, rank))
    stream.send_note(_Call(me.rank, met.session.hex()), deadline)
    return stream


def _taken(me: Membership, rank: int, met: Met, stream: Stream, deadline: float) -> Stream:
    """Wait for a partner's word that it took the call; where strangers at its door cost us our place, call again."""
    for _ in range(_TRIES):
        try:
            stream.take_note(_Taken, deadline)
            return stream
        except TimeoutError:
            break
        except OSError:
            stream.close()
            stream = _called(me, rank, met, deadline)
    stream.close()
    raise PeerLate(f"{_named(me, rank)} did not take this rank's call within {me.timeout_s:g} s", rank)


def _take_calls(
    me: Membership,
    met: Met,
    callers: Callers[_Call],
    lower: set[int],
    streams: dict[int, Stream],
    deadline: float,
) -> None:
    while missing := lower - streams.keys():
        absent = min(missing)
        caller = callers.next(partial(_named, me, absent))
        if caller is None:
            raise PeerLate(f"{_named(me, absent)} did not connect within {me.timeout_s:g} s", absent)
        stream, hello = caller
        if hello.session != met.session.hex() or hello.rank not in missing:
            stream.close()
        else:
            streams[hello.rank] = stream
            stream.send_note(_Taken(), deadline)


def _greet_called(me: Membership, met: Met, rank: int) -> Greet | None:
    """Return how to begin a link with a rank that we call."""
    if me.secret is None or not met.seals:
        return None
    key = key_of(me.secret, met.session)
    return partial(sealing, key=key, token=token_of(key, me.rank, rank))


def _greet_callers(me: Membership, met: Met, lower: set[int]) -> Greet | None:
    """Return how to begin a link with one of the ranks that call us."""
    if me.secret is None or not met.seals:
        return None
    key = key_of(me.secret, met.session)
    return partial(sealing, key=key, admits={token_of(key, rank, me.rank) for rank in lower}.__contains__)


def _named(me: Membership, rank: int) -> str:
    return f"rank {rank} ({me.endpoints[rank]})"


def key_of(secret: bytes, session: bytes) -> bytes:
    """Return what all links of a session make their keys from."""
    return hashlib.blake2b(session, key=secret, digest_size=_KEY_BYTES, person=b"links").digest()


def token_of(key: bytes, caller: int, called: int) -> bytes:
    """Return the token of one rank's calls to another in a session."""
    said = caller.to_bytes(4, "little") + called.to_bytes(4, "little")
    return hashlib.blake2b(said, key=key, digest_size=TOKEN_BYTES, person=b"lane").digest()


def sealing(
    sock: socket.socket, key: bytes, token: bytes = b"", admits: Callable[[bytes], bool] = lambda token: True
) -> Steps[Stream]:
    """Return the connection, ready for use. The caller ends the steps after `HANDSHAKE_S`.

    Args:
        sock: just connected; closed if this fails or is ended.
        key: see `key_of`.
        token: of the side that calls; who is called has none.
        admits: tells who is called whether it expects a token.

    Raises:
        WireError: the other end is no rank that this link is meant for.
        OSError: the connection broke.
    """
    prepare(sock)
    try:
        handshake = Handshake(sock, key, token, admits)
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
