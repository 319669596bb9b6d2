# SPDX-License-Identifier: Apache-2.0
"""Sockets that peers try to reach during the preflight: one an address, since nothing here listens on all of them."""

from __future__ import annotations

import socket
from functools import partial
from typing import Dict, List

from agent.link.inet import family_of
from agent.link.loop import Loop

BACKLOG = 1024


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


def _accept(listener: socket.socket) -> None:
    try:
        listener.accept()[0].close()
    except OSError:
        return  # the peer was content already
