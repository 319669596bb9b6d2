# SPDX-License-Identifier: Apache-2.0
"""How ranks get connections: one listens at its endpoint, another calls it until it answers."""

from __future__ import annotations

import errno
import logging
import random
import socket
import time

from paddle.collective.connection.handshake import HANDSHAKE_S, Side, handshake
from paddle.collective.connection.stream import Greet, Stream, finish
from paddle.collective.errors import CollectiveError, PeerLate
from paddle.collective.membership import Membership
from paddle.endpoints import address_of
from paddle.errors import ConfigError, PortBusy, WireError
from paddle.telling import Telling

_log = logging.getLogger(__name__)

_BACKLOG = 128
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 0.5
_CALL_S = 10.0


def listen(me: Membership) -> socket.socket:
    """Listen at this rank's endpoint.

    Raises:
        PortBusy: another process has the port.
        ConfigError: the address is none of this machine's.
    """
    endpoint = me.endpoints[me.rank]
    host, port = address_of(endpoint)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortBusy(
                f"rank {me.rank} cannot listen at {endpoint}: another process does", endpoint
            ) from None
        raise ConfigError(
            f"rank {me.rank} cannot listen at {endpoint} ({error.strerror or error}): the endpoint must be an "
            "address of the machine it runs on"
        ) from None
    listener.setblocking(False)
    return listener


def call(me: Membership, rank: int, deadline: float, greet: Greet | None = None) -> Stream:
    """Return a connection with a rank that listens, or will; why it does not come about is told meanwhile.

    Args:
        greet: its handshake, if it is not that of the meeting.

    Raises:
        PeerLate: it did not answer before the deadline.
        CollectiveError: somebody else answers there.
    """
    endpoint = me.endpoints[rank]
    pause_s, why = _FIRST_PAUSE_S, ""
    telling = Telling(deadline - time.monotonic())
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            sock = socket.create_connection(address_of(endpoint), timeout=min(left_s, _CALL_S))
            steps = greet(sock) if greet else handshake(sock, Side.CALLING, me.secret, me.sealed)
            return finish(steps, sock.fileno(), time.monotonic() + HANDSHAKE_S)
        except WireError as error:
            raise CollectiveError(f"rank {rank} at {endpoint}: {error}", rank) from None
        except OSError as error:  # it is not there yet
            why = (error.strerror or str(error)).lower()
            if telling.pass_moment():
                _log.warning(
                    "rank %d waits for rank %d at %s: %s (%s)", me.rank, rank, endpoint, why, telling
                )
        time.sleep(min(pause_s * random.uniform(0.5, 1.0), max(left_s, 0)))  # noqa: S311 - jitter
        pause_s = min(2 * pause_s, _LAST_PAUSE_S)
    raise PeerLate(f"rank {rank} at {endpoint} did not answer within {me.timeout_s:g} s: {why}", rank)
