# SPDX-License-Identifier: Apache-2.0
"""The ways between nodes before a job: listeners that other nodes try, and tries of theirs.

One listener an address, since nothing here listens on all of them. A try is a TCP connection; all run at once, each
is timed.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

from agent.link.inet import family_of, usual
from agent.link.loop import Loop

REACH_S = 2.0
BACKLOG = 1024

Way = Tuple[int, str, int]


class Listeners:
    """Accepts and closes whatever comes, until `close`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._open: List[socket.socket] = []

    def listen(self, addresses: List[str], problems: List[List[str]]) -> Dict[str, int]:
        """Listen on a free port of each address; the ports by address. One that cannot be had is a problem."""
        self.close()
        found = {}
        for address in addresses:
            try:
                listener = socket.socket(family_of(address), socket.SOCK_STREAM)
            except OSError as error:
                problems.append(["address", "%s cannot be used: %s" % (address, error.strerror)])
                continue
            try:
                listener.bind((address, 0))
                listener.listen(BACKLOG)
            except OSError as error:
                listener.close()
                problems.append(["address", "%s cannot be bound: %s" % (address, error.strerror)])
                continue
            listener.setblocking(False)
            self._open.append(listener)
            self._loop.on_readable(listener.fileno(), partial(_accept, listener))
            found[address] = int(listener.getsockname()[1])
        return found

    def close(self) -> None:
        """Close all of them."""
        for listener in self._open:
            self._loop.on_readable(listener.fileno(), None)
            listener.close()
        self._open.clear()


class Reach:
    """Tries a TCP connection to every peer at once.

    Args:
        peers: [[node_id, address, port], ...]; a peer may be there with several addresses.
        done: called once, after REACH_S at most, with [[node_id, ok, text, address, seconds], ...]: in the order of
            the nodes, then of the addresses as they were given.

    Raises:
        ValueError: peers has another form.
    """

    def __init__(self, loop: Loop, peers: Any, done: Callable[[List[List[Any]]], None]) -> None:
        self._loop = loop
        self._done = done
        self._ways = sorted(dict.fromkeys(_ways(peers)), key=lambda way: way[0])
        self._results: Dict[Way, Tuple[bool, str, float]] = {}
        self._trying: Dict[Way, socket.socket] = {}
        self._begun = time.monotonic()
        self._timer = loop.after(REACH_S, self._give_up)
        for way in self._ways:
            self._try(way)
        self._finish()

    def _try(self, way: Way) -> None:
        _, address, port = way
        try:
            peer = socket.socket(family_of(address), socket.SOCK_STREAM)
        except OSError as error:  # no IPv6 here, or too many descriptors
            self._note(way, error.errno or errno.EINVAL)
            return
        peer.setblocking(False)
        code = peer.connect_ex((address, port))
        if code == errno.EINPROGRESS:
            self._trying[way] = peer
            self._loop.on_writable(peer.fileno(), lambda: self._answered(way))
        else:
            peer.close()
            self._note(way, code)

    def _answered(self, way: Way) -> None:
        peer = self._trying.pop(way)
        self._loop.on_writable(peer.fileno(), None)
        code = peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        peer.close()
        self._note(way, code)
        self._finish()

    def _note(self, way: Way, code: int) -> None:
        took_s = round(time.monotonic() - self._begun, 6)
        self._results[way] = (code == 0, "" if code == 0 else os.strerror(code), took_s)

    def _give_up(self) -> None:
        for way, peer in self._trying.items():
            self._loop.on_writable(peer.fileno(), None)
            peer.close()
            self._results[way] = (False, "no answer within %.0f s" % REACH_S, REACH_S)
        self._trying.clear()
        self._finish()

    def _finish(self) -> None:
        if not self._trying:
            self._timer.cancel()
            done, self._done = self._done, lambda results: None
            found = []
            for way in self._ways:
                ok, text, took_s = self._results[way]
                found.append([way[0], ok, text, way[1], took_s])
            done(found)


def _ways(value: Any) -> List[Way]:
    if not isinstance(value, list):
        raise ValueError("peers must be a list, got %.80r" % (value,))
    found = []
    for item in value:
        try:
            node_id, address, port = item
            if not 0 <= int(port) <= 65535:
                raise ValueError("no port")
            found.append((int(node_id), usual(address), int(port)))
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError("%.80r is no [node_id, address, port]: %s" % (item, error)) from error
    return found


def _accept(listener: socket.socket) -> None:
    try:
        listener.accept()[0].close()
    except OSError:
        return  # the peer was content already
