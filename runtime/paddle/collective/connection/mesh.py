# SPDX-License-Identifier: Apache-2.0
"""Connections for data between nodes: of each node's first rank with its neighbours in the ring and its partners.

Of two ranks the lower one calls the higher one at that one's endpoint, so that no other port is ever used.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from functools import partial

from paddle.collective.connection.callers import Callers
from paddle.collective.connection.calling import call
from paddle.collective.connection.stream import Stream
from paddle.collective.errors import PeerLate
from paddle.collective.membership import Membership

_TRIES = 4  # of a call that strangers at a partner's door may cost


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
    me: Membership, ranks: Sequence[int], session: bytes, listener: socket.socket | None
) -> dict[int, Stream]:
    """Return a connection with each partner.

    Args:
        ranks: the first rank of each node, this one's among them.
        session: of the meeting; whoever calls with another one is of an earlier attempt.
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
            streams[rank] = _called(me, rank, session, deadline)
        lower = {rank for rank in wanted if rank < me.rank}
        if lower:
            assert listener is not None
            with Callers(me, listener, deadline) as callers:
                _take_calls(me, session, callers, lower, streams, deadline)
        for rank in higher:
            streams[rank] = _taken(me, rank, session, streams[rank], deadline)
    except BaseException:
        for stream in streams.values():
            stream.close()
        raise
    return streams


def _called(me: Membership, rank: int, session: bytes, deadline: float) -> Stream:
    stream = call(me, rank, deadline)
    stream.send_note({"rank": me.rank, "session": session.hex()}, deadline)
    return stream


def _taken(me: Membership, rank: int, session: bytes, stream: Stream, deadline: float) -> Stream:
    """Wait for a partner's word that it took the call; where strangers at its door cost us our place, call again."""
    for _ in range(_TRIES):
        try:
            stream.take_note(deadline)
            return stream
        except TimeoutError:
            break
        except OSError:
            stream.close()
            stream = _called(me, rank, session, deadline)
    stream.close()
    raise PeerLate(f"{_named(me, rank)} did not take this rank's call within {me.timeout_s:g} s", rank)


def _take_calls(
    me: Membership,
    session: bytes,
    callers: Callers,
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
        rank = hello.get("rank")
        if hello.get("session") != session.hex() or rank not in missing:
            stream.close()
        else:
            streams[rank] = stream
            stream.send_note({}, deadline)


def _named(me: Membership, rank: int) -> str:
    return f"rank {rank} ({me.endpoints[rank]})"
