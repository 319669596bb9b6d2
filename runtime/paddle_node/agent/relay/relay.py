# SPDX-License-Identifier: Apache-2.0
"""File transfers between the nodes of one job while its trees are distributed: a listener, senders and a receiver.

Only peers with the job's certificate receive files, and only files in the job's own manifests. The listener is closed
when the distribution has ended.
"""

from __future__ import annotations

import errno
import socket
from typing import Callable, Dict, Optional, Sequence, Set

from paddle_node.agent.files.shared_trees import SharedTrees
from paddle_node.agent.link.loop import Loop
from paddle_node.agent.relay.giver import Giver
from paddle_node.agent.relay.taker import Source, Taker
from paddle_node.agent.relay.tls import Identity, identity
from paddle_node.contract import to_agent
from paddle_node.linux.inet import family_of, usual

CONNECTIONS = 64
BACKLOG = 128
SOURCES = 16
SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
SHORT_S = 0.5  # seconds until another attempt is worthwhile


class Relay:
    """The relay of one node: all its connections to and from other nodes."""

    def __init__(self, loop: Loop, trees: SharedTrees, send: Callable[..., None]) -> None:
        self._loop = loop
        self._trees = trees
        self._send = send
        self._identity: Optional[Identity] = None
        self._listener: Optional[socket.socket] = None
        self._givers: Dict[Giver, str] = {}
        self._strangers: Set[str] = set()
        self._taker: Optional[Taker] = None

    def open(self, asked: to_agent.Relay) -> None:
        """Listen for other nodes, and report the address and port.

        Raises:
            ValueError: the address, the certificate or the key is invalid.
            OSError: the address cannot be bound.
        """
        address = usual(asked.address)
        self._identity = identity(asked.certificate, asked.key)
        listener = socket.socket(family_of(address), socket.SOCK_STREAM)
        try:
            listener.bind((address, 0))
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        listener.setblocking(False)
        self._listener = listener
        self._listen()
        self._send("relaying", address=address, port=listener.getsockname()[1])

    def fetch(self, sources: Sequence[Source], wanted: Dict[str, int]) -> None:
        """Fetch files from other nodes.

        Args:
            sources: the relays of the nodes to fetch from, 1 to SOURCES, the best first.
            wanted: sizes by digest, in the order in which they are needed.

        Raises:
            ValueError: the sources are invalid.
        """
        if not 0 < len(sources) <= SOURCES:
            raise ValueError("sources must be 1 to %d, got %d" % (SOURCES, len(sources)))
        sources = [(usual(address), port) for address, port in sources]
        if self._identity is None or self._taker is not None:
            raise ValueError("unexpected fetch: only one is allowed, and it must follow relay")
        self._taker = Taker(
            self._loop,
            self._identity,
            self._trees.arrivals,
            sources,
            wanted,
            arrived=self._trees.arrived,
            broken=self._trees.not_stored,
            left=self._left,
            ended=self._trees.fetched,
        )
        self._taker.start()

    def close(self) -> None:
        """Close every connection and the listener."""
        if self._listener is not None:
            self._loop.on_readable(self._listener.fileno(), None)
            self._listener.close()
            self._listener = None
        for giver in list(self._givers):
            giver.close()
        self._givers.clear()
        if self._taker is not None:
            self._taker.close()
        self._identity = None
        self._trees.given.clear()

    def _left(self, what: str) -> None:
        self._send("notice", text="continuing without a relay: %s" % what)

    def _listen(self) -> None:
        if self._listener is not None:
            self._loop.on_readable(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        if self._listener is None or self._identity is None:
            return
        try:
            peer, where = self._listener.accept()
        except OSError as error:
            if error.errno in SHORT:  # a waiting connection would trigger the callback again immediately
                self._loop.on_readable(self._listener.fileno(), None)
                self._loop.after(SHORT_S, self._listen)
            return  # else the peer had already left
        peer.setblocking(False)
        if len(self._givers) >= CONNECTIONS:
            self._make_room()
        giver = Giver(self._loop, peer, self._identity, self._trees, self._ended)
        self._givers[giver] = str(where[0])

    def _make_room(self) -> None:
        """Close the oldest unauthenticated connection, or else the oldest one."""
        oldest = next((giver for giver in self._givers if not giver.known), next(iter(self._givers)))
        oldest.close()
        del self._givers[oldest]

    def _ended(self, giver: Giver, reason: str) -> None:
        where = self._givers.pop(giver, "")
        if not giver.known and where not in self._strangers and len(self._strangers) < CONNECTIONS:
            self._strangers.add(where)
            text = "the relay refused a peer at %s without the job's certificate (%s)"
            self._send("notice", text=text % (where, reason))
