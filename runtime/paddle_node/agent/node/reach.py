# SPDX-License-Identifier: Apache-2.0
"""Probes the network paths between nodes, before and during a job, and listens for other nodes' probes.

There is one listener per address. A probe opens a TCP connection and sends FULL_BYTES: the peer's kernel acknowledges
them only if full-size packets arrive. On a path that drops these (a smaller MTU without an ICMP message), connections
open but carry no data. All probes run in parallel.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import time
from functools import partial
from typing import Any, Callable, Dict, List, Sequence, Set, Tuple

from paddle_node.agent.link.loop import Loop
from paddle_node.linux.inet import family_of, usual

REACH_S = 2.0  # seconds until a connection is open
FULL_S = 3.0  # then, seconds until a full-size packet has arrived, including retransmissions
FULL_BYTES = 16 << 10  # more than a packet of any usual network
BACKLOG = 1024
_MOST_CALLERS, _CALLER_S, _MOST_READ = 256, 10.0, 1 << 20
_FIRST_LOOK_S, _LAST_LOOK_S = 0.001, 0.2
_RESET = (errno.EPIPE, errno.ECONNRESET)
_IP_MTU, _IPV6_MTU = 14, 24  # linux/in.h, linux/in6.h
_TIOCOUTQ = {"x86_64": 0x5411, "aarch64": 0x5411}  # elsewhere from `termios`, which is slow to import

Route = Tuple[int, str, int]


class Listeners:
    """The listeners for probes of other nodes, one per address.

    They accept connections until `close`, and discard up to _MOST_READ bytes from each, for up to _CALLER_S seconds.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._open: List[socket.socket] = []
        self._callers: Set[_Caller] = set()

    def listen(self, addresses: List[str], problems: List[List[str]]) -> Dict[str, int]:
        """Listen on a free port of each address and return the ports by address; append failures to `problems`."""
        self.close()
        found = {}
        for address in addresses:
            try:
                listener = socket.socket(family_of(address), socket.SOCK_STREAM)
            except OSError as error:
                problems.append(["address", "cannot use %s: %s" % (address, error.strerror)])
                continue
            try:
                listener.bind((address, 0))
                listener.listen(BACKLOG)
            except OSError as error:
                listener.close()
                problems.append(["address", "cannot bind %s: %s" % (address, error.strerror)])
                continue
            listener.setblocking(False)
            self._open.append(listener)
            self._loop.on_readable(listener.fileno(), partial(self._accept, listener))
            found[address] = int(listener.getsockname()[1])
        return found

    def keep(self, address: str) -> None:
        """Close the listeners on all addresses except the job's, which is probed again while the job runs."""
        for listener in [one for one in self._open if usual(one.getsockname()[0]) != usual(address)]:
            self._loop.on_readable(listener.fileno(), None)
            listener.close()
            self._open.remove(listener)

    def close(self) -> None:
        """Close the listeners and the connections that they accepted."""
        for caller in list(self._callers):
            caller.close()
        for listener in self._open:
            self._loop.on_readable(listener.fileno(), None)
            listener.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection = listener.accept()[0]
        except OSError:
            return  # the peer has already got its answer
        if len(self._callers) >= _MOST_CALLERS:
            connection.close()
            return
        self._callers.add(_Caller(self._loop, connection, self._callers.discard))


class _Caller:
    """A connection from a peer, which closes it once its bytes were acknowledged."""

    def __init__(self, loop: Loop, connection: socket.socket, left: "Callable[[_Caller], None]") -> None:
        self._loop, self._connection, self._left = loop, connection, left
        self._read = 0
        connection.setblocking(False)
        loop.on_readable(connection.fileno(), self._discard)
        self._timer = loop.after(_CALLER_S, self.close)

    def close(self) -> None:
        """Close the connection."""
        self._timer.cancel()
        self._loop.on_readable(self._connection.fileno(), None)
        self._connection.close()
        self._left(self)

    def _discard(self) -> None:
        try:
            data = self._connection.recv(FULL_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._read += len(data)
        if not data or self._read > _MOST_READ:
            self.close()


class Reach:
    """The probes of all peers, in parallel: a TCP connection to each, and full-size packets over it.

    Args:
        peers: (node ID, address, port) of each peer; a peer may be listed with several addresses.
        done: function that is called once, after at most REACH_S + FULL_S seconds, with [[node_id, ok, text, address,
            seconds], ...] in the order of the nodes, then of the addresses as given.

    Raises:
        ValueError: an address is not an IP address.
    """

    def __init__(self, loop: Loop, peers: Sequence[Route], done: Callable[[List[List[Any]]], None]) -> None:
        self._loop = loop
        self._done = done
        routes = dict.fromkeys((node_id, usual(address), port) for node_id, address, port in peers)
        self._routes = sorted(routes, key=lambda route: route[0])
        self._results: Dict[Route, Tuple[bool, str, float]] = {}
        self._trying: Dict[Route, socket.socket] = {}
        self._filling: Set[Route] = set()
        self._begun = time.monotonic()
        self._timer = loop.after(REACH_S, self._give_up)
        for route in self._routes:
            self._try(route)
        self._finish()

    def _try(self, route: Route) -> None:
        _, address, port = route
        try:
            peer = socket.socket(family_of(address), socket.SOCK_STREAM)
        except OSError as error:  # no IPv6, or too many open descriptors
            self._note(route, error.errno or errno.EINVAL)
            return
        peer.setblocking(False)
        code = peer.connect_ex((address, port))
        if code == errno.EINPROGRESS:
            self._trying[route] = peer
            self._loop.on_writable(peer.fileno(), lambda: self._answered(route))
        else:
            peer.close()
            self._note(route, code)

    def _answered(self, route: Route) -> None:
        peer = self._trying.pop(route)
        self._loop.on_writable(peer.fileno(), None)
        code = peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._note(route, code)
        try:
            sent = 0 if code else peer.send(bytes(FULL_BYTES))
        except OSError:  # already closed, which counts as an answer
            sent = 0
        if sent:
            self._filling.add(route)
            self._check_sent(route, peer, sent, time.monotonic() + FULL_S, _FIRST_LOOK_S)
        else:
            peer.close()
            self._finish()

    def _check_sent(
        self, route: Route, peer: socket.socket, sent: int, deadline: float, wait_s: float
    ) -> None:
        """Check whether the peer has acknowledged or refused the first bytes, which filled a packet."""
        left = _unacknowledged(peer)
        # a peer that closed the connection, for example because of too many callers, answers with a reset
        is_lost = left >= sent and peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) not in _RESET
        if is_lost and time.monotonic() < deadline:
            again = partial(self._check_sent, route, peer, sent, deadline, min(2 * wait_s, _LAST_LOOK_S))
            self._loop.after(wait_s, again)
            return
        if is_lost:
            text = (
                "connections open, but packets of %d bytes do not arrive "
                "(a link on the path has a smaller MTU and does not report it)"
            )
            self._results[route] = (False, text % _mtu(peer), self._results[route][2])
        self._filling.discard(route)
        peer.close()
        self._finish()

    def _note(self, route: Route, code: int) -> None:
        took_s = round(time.monotonic() - self._begun, 6)
        self._results[route] = (code == 0, "" if code == 0 else os.strerror(code), took_s)

    def _give_up(self) -> None:
        for route, peer in self._trying.items():
            self._loop.on_writable(peer.fileno(), None)
            peer.close()
            self._results[route] = (False, "no answer within %.0f s" % REACH_S, REACH_S)
        self._trying.clear()
        self._finish()

    def _finish(self) -> None:
        if not self._trying and not self._filling:
            self._timer.cancel()
            done, self._done = self._done, lambda results: None
            found = []
            for route in self._routes:
                ok, text, took_s = self._results[route]
                found.append([route[0], ok, text, route[1], took_s])
            done(found)


def _mtu(peer: socket.socket) -> int:
    is_v6 = peer.family == socket.AF_INET6
    level, name = (socket.IPPROTO_IPV6, _IPV6_MTU) if is_v6 else (socket.IPPROTO_IP, _IP_MTU)
    return peer.getsockopt(level, name)


def _unacknowledged(peer: socket.socket) -> int:
    """Return the number of sent bytes that the peer has not acknowledged."""
    request = _TIOCOUTQ.get(os.uname().machine)
    if request is None:
        import termios

        request = termios.TIOCOUTQ
    (left,) = struct.unpack("i", fcntl.ioctl(peer.fileno(), request, bytes(4)))
    return int(left)
