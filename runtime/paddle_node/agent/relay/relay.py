# SPDX-License-Identifier: Apache-2.0
"""Transfers files between the nodes of one job while its trees are distributed: a listener, senders and a receiver.

Only peers with the job's certificate receive files, and only files in the job's own manifests. The listener is closed
when the distribution has ended.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Sequence, Set

from paddle_node.agent.files.arrivals import Incoming
from paddle_node.agent.files.shared_trees import SharedTrees
from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.relay.channel import Channel
from paddle_node.agent.relay.taker import Source, Taker
from paddle_node.agent.relay.tls import Identity, identity
from paddle_node.agent.relay.wire import AGAIN, CHUNK, DATA, MISSING, WAIT, Want, WantReader, WireError, reply
from paddle_node.contract import to_agent
from paddle_node.linux.inet import family_of, usual

CONNECTIONS = 64
BACKLOG = 128
SOURCES = 16
SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
SHORT_S = 0.5  # seconds until another attempt is worthwhile


class Relay:
    """The file relay of one node: its listener, and its connections to and from other nodes."""

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
        """Start fetching files from other nodes.

        Args:
            sources: the relays of the nodes to fetch from, 1 to SOURCES, the best first.
            wanted: sizes by digest, in the order in which they are needed.

        Raises:
            ValueError: the sources are invalid.
        """
        if not 0 < len(sources) <= SOURCES:
            raise ValueError("expected 1 to %d sources, got %d" % (SOURCES, len(sources)))
        sources = [(usual(address), port) for address, port in sources]
        if self._identity is None or self._taker is not None:
            raise ValueError("expected only one fetch message, and only after a relay message")
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


WAIT_S = 1.0
LEAST = 1 << 17  # bytes of an arriving file that are worth a message
PENDING_LIMIT = 1 << 14  # requests; a correct peer asks for far fewer ahead


class Giver:
    """A connection over which files are sent to one other node, even while they are still arriving here.

    Data is read from the disk and not held in memory, so that a slow peer does not delay other peers. Until the next
    bytes of a file arrive, the peer is sent WAIT every WAIT_S seconds; it changes its source only when a node is
    entirely silent.

    Args:
        ended: called once with this giver and the reason.
    """

    def __init__(
        self,
        loop: Loop,
        peer: socket.socket,
        identity: Identity,
        trees: SharedTrees,
        ended: "Callable[[Giver, str], None]",
    ) -> None:
        self.given = 0
        self._loop = loop
        self._trees = trees
        self._ended = ended
        self._reader = WantReader()
        self._pending: Deque[Want] = deque()
        self._open: Optional[_Open] = None
        self._timer: Optional[Timer] = None
        self._channel = Channel(
            loop,
            peer,
            identity,
            is_server=True,
            opened=lambda: None,
            received=self._on_request,
            room=self._give,
            closed=self._closed,
        )

    @property
    def known(self) -> bool:
        """Return whether the peer is authenticated as a node of the job."""
        return self._channel.known

    def close(self) -> None:
        """Close the connection to the other node."""
        self._channel.close()
        self._put_away()
        self._quiet()

    def _closed(self, reason: str) -> None:
        self.close()
        self._ended(self, reason)

    def _on_request(self, data: memoryview) -> None:
        try:
            self._pending.extend(self._reader.feed(data))
        except WireError as error:
            self._closed(str(error))
            return
        if len(self._pending) > PENDING_LIMIT:
            self._closed("the request for files is too large")
            return
        if self._timer is None:
            self._channel.want_room(bool(self._pending))

    def _give(self) -> None:
        """Send one message; the loop repeats the call while the peer accepts more."""
        parts: List[bytes] = []
        size = 0
        due = b""
        while self._pending and size < CHUNK and not due:
            data, due = self._next(CHUNK - size)
            if not data and not due:
                break  # nothing more has arrived
            parts.append(data)
            size += len(data)
        if size:
            self.given += size
            self._channel.send(reply(DATA, b"".join(parts)) + due)
        elif due:
            self._channel.send(due)
        elif self._pending:
            self._wait()
        else:
            self._channel.want_room(False)

    def _next(self, limit: int) -> "tuple[bytes, bytes]":
        """Return the next bytes of the current file, and the message that must follow them."""
        digest, offset = self._pending[0]
        if self._open is None:
            self._open = self._open_file(digest, offset)
            if self._open is None:
                if self._trees.expects(digest):
                    return b"", b""
                self._pending.popleft()
                return b"", reply(MISSING)
        if self._open.is_stale():
            self._put_away()
            self._pending[0] = (digest, 0)
            return b"", reply(AGAIN)
        try:
            data = self._open.read(offset, limit)
        except OSError:  # a disk error: another node may have the file
            self._put_away()
            self._pending.popleft()
            return b"", reply(MISSING)
        self._pending[0] = (digest, offset + len(data))
        if offset + len(data) == self._open.size:
            self._put_away()
            self._pending.popleft()
            # an empty read does not mean that nothing has arrived
            return data, b"" if data else reply(WAIT)
        return data, b""

    def _open_file(self, digest: str, offset: int) -> "Optional[_Open]":
        size = self._trees.size_of(digest)
        if size is None or offset > size:
            return None
        path = self._trees.path_of(digest)
        try:
            if path is not None:
                return _Open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), size, None)
            incoming = self._trees.arrivals.get(digest)
            return None if incoming is None else _Open(incoming.reader(), size, incoming)
        except OSError:
            return None

    def _put_away(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _wait(self) -> None:
        """Send WAIT at intervals, and continue once more bytes of the file have arrived."""
        self._channel.want_room(False)
        self._trees.arrivals.follow(self._pending[0][0], self._go_on)
        self._quiet()
        self._timer = self._loop.after(WAIT_S, self._say_wait)

    def _say_wait(self) -> None:
        if self._channel.is_open:
            self._timer = self._loop.after(WAIT_S, self._say_wait)
            self._channel.send(reply(WAIT))

    def _go_on(self) -> None:
        self._quiet()
        if self._channel.is_open:
            self._channel.want_room(True)

    def _quiet(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Open:
    """A file that is being sent."""

    def __init__(self, fd: int, size: int, incoming: Optional[Incoming]) -> None:
        self.size = size
        self._fd = fd
        self._incoming = incoming

    def is_stale(self) -> bool:
        """Return whether the bytes sent so far may be wrong: then the file is sent again from its start."""
        return self._incoming is not None and self._incoming.dropped

    def read(self, offset: int, limit: int) -> bytes:
        """Return the available bytes starting at an offset; withhold the last byte until the digest is verified."""
        end = self.size
        if self._incoming is not None and not self._incoming.published:
            end = min(self._incoming.size, self.size - 1)
            if end - offset < min(LEAST, self.size - 1 - offset):
                return b""
        wanted = max(0, min(limit, end - offset))
        data = os.pread(self._fd, wanted, offset) if wanted else b""
        # an arriving file may end with a hole that has not been written yet
        return data + bytes(wanted - len(data))

    def close(self) -> None:
        os.close(self._fd)
