# SPDX-License-Identifier: Apache-2.0
"""Connections for data between nodes: of each node's first rank with its neighbours in the ring and its partners.

Of two ranks the lower one calls the higher one at that one's endpoint, so that no other port is ever used.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from paddle.collective.calling import call, callers
from paddle.collective.errors import PeerLate
from paddle.collective.membership import Membership
from paddle.collective.stream import Stream
from paddle.errors import WireError

_HELLO_S = 10.0


def partners(place: int, count: int) -> set[int]:
    """Return the places that one of `count` exchanges data with: both neighbours, and those of `doubling`."""
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
        for rank in sorted(rank for rank in wanted if rank > me.rank):
            streams[rank] = call(me, rank, deadline)
            streams[rank].send_note({"rank": me.rank, "session": session.hex()}, deadline)
        lower = {rank for rank in wanted if rank < me.rank}
        while lower - streams.keys():
            assert listener is not None
            _take_call(me, session, listener, lower, streams, deadline)
    except BaseException:
        for stream in streams.values():
            stream.close()
        raise
    return streams


def _take_call(
    me: Membership,
    session: bytes,
    listener: socket.socket,
    lower: set[int],
    streams: dict[int, Stream],
    deadline: float,
) -> None:
    absent = min(lower - streams.keys())
    named = f"rank {absent} ({me.endpoints[absent]})"
    stream = next(callers(me, listener, deadline, lambda: named), None)
    if stream is None:
        raise PeerLate(f"{named} did not connect within {me.timeout_s:g} s", absent)
    try:
        hello = stream.take_note(time.monotonic() + _HELLO_S)
    except (OSError, WireError):
        hello = {}
    rank = hello.get("rank")
    if hello.get("session") != session.hex() or rank not in lower:
        stream.close()
    else:
        streams[rank] = stream
