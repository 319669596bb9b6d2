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
from paddle.collective.connection.rendezvous import Met
from paddle.collective.connection.sealed_link import key_of, lane_of, sealing
from paddle.collective.connection.stream import Greet, Stream
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
            with Callers(me, listener, deadline, _greet_callers(me, met, lower)) as callers:
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
    stream.send_note({"rank": me.rank, "session": met.session.hex()}, deadline)
    return stream


def _taken(me: Membership, rank: int, met: Met, stream: Stream, deadline: float) -> Stream:
    """Wait for a partner's word that it took the call; where strangers at its door cost us our place, call again."""
    for _ in range(_TRIES):
        try:
            stream.take_note(deadline)
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
        if hello.get("session") != met.session.hex() or rank not in missing:
            stream.close()
        else:
            streams[rank] = stream
            stream.send_note({}, deadline)


def _greet_called(me: Membership, met: Met, rank: int) -> Greet | None:
    """Return how to begin a link with a rank that we call."""
    if me.secret is None or not met.seals:
        return None
    key = key_of(me.secret, met.session)
    return partial(sealing, key=key, lane=lane_of(key, me.rank, rank))


def _greet_callers(me: Membership, met: Met, lower: set[int]) -> Greet | None:
    """Return how to begin a link with one of the ranks that call us."""
    if me.secret is None or not met.seals:
        return None
    key = key_of(me.secret, met.session)
    return partial(sealing, key=key, admits={lane_of(key, rank, me.rank) for rank in lower}.__contains__)


def _named(me: Membership, rank: int) -> str:
    return f"rank {rank} ({me.endpoints[rank]})"
