# SPDX-License-Identifier: Apache-2.0
"""Receives files from other nodes, one source after the other, each from the byte at which the previous one stopped.

A source that disconnects, is silent for STALL_S seconds or sends wrong bytes is not used again. Files that no source
provides are left to the caller.
"""

from __future__ import annotations

import errno
import socket
from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Tuple

from paddle_node.agent.files.arrivals import Arrivals, DigestError, Incoming
from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.relay.channel import Channel
from paddle_node.agent.relay.tls import Identity
from paddle_node.agent.relay.wire import AGAIN, DATA, MISSING, MessageReader, Want, WireError, wants
from paddle_node.linux.inet import family_of

STALL_S = 4.0
BATCH = 256  # files in one request

Source = Tuple[str, int]


class Taker:
    """The download of missing files from other nodes, one source after the other, in the agent's event loop.

    Args:
        sources: (address, port), the best first.
        wanted: sizes by digest, in the order in which they are requested.
        arrived: called with the digest and size of each file that is now in the cache.
        broken: called once if a file cannot be written; no other call follows.
        left: called with a message when a source is given up.
        ended: called once, when no source can provide further files.
    """

    def __init__(
        self,
        loop: Loop,
        identity: Identity,
        arrivals: Arrivals,
        sources: List[Source],
        wanted: Dict[str, int],
        *,
        arrived: Callable[[str, int], None],
        broken: Callable[[OSError], None],
        left: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._identity = identity
        self._arrivals = arrivals
        self._sources = deque(sources)
        self._sizes = wanted
        self._arrived, self._broken, self._left, self._ended = arrived, broken, left, ended
        self._to_ask: Deque[str] = deque(wanted)  # not yet requested from this source
        self._due: Deque[str] = deque()  # requested, in the order in which they arrive
        self._elsewhere: List[str] = []  # this source does not have them
        self._incoming: Optional[Incoming] = None
        self._clean = True  # every byte of the current file came from this source
        self._channel: Optional[Channel] = None
        self._reader = MessageReader()
        self._stall: Optional[Timer] = None
        self._here = ""
        self._over = False

    def start(self) -> None:
        """Start fetching from the first source."""
        self._empty_files()
        self._next_source("")

    def close(self) -> None:
        """Stop fetching; no further callback is called."""
        self._over = True
        self._hang_up()

    def _empty_files(self) -> None:
        for digest in [digest for digest in self._to_ask if self._sizes[digest] == 0]:
            if not self._over:
                self._to_ask.remove(digest)
                self._store_small(digest, memoryview(b""))

    def _next_source(self, reason: str) -> None:
        """Leave the current source, if any, and continue with the next."""
        if self._over:
            return
        if reason:
            self._left("%s: %s" % (self._here, reason))
        self._hang_up()
        self._to_ask = deque([*self._due, *self._to_ask, *self._elsewhere])
        self._due.clear()
        self._elsewhere = []
        self._clean = self._incoming is None
        if not self._to_ask or not self._sources:
            self._over = True
            self._ended()
            return
        address, port = self._sources.popleft()
        self._here = "%s:%d" % (address, port)
        self._reader = MessageReader()
        peer = socket.socket(family_of(address), socket.SOCK_STREAM)
        peer.setblocking(False)
        code = peer.connect_ex((address, port))
        if code not in (0, errno.EINPROGRESS):
            peer.close()
            self._loop.after(0, lambda: self._next_source(OSError(code, "").strerror or "error %d" % code))
            return
        self._channel = Channel(
            self._loop,
            peer,
            self._identity,
            is_server=False,
            opened=self._ask,
            received=self._on_data,
            room=lambda: None,
            closed=self._next_source,
        )
        self._listen()

    def _hang_up(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _listen(self) -> None:
        """Wait for a message for at most STALL_S."""
        if self._stall is not None:
            self._stall.cancel()
        self._stall = self._loop.after(STALL_S, lambda: self._next_source("no message for %.0f s" % STALL_S))

    def _ask(self) -> None:
        """Request more files while few are outstanding."""
        while self._to_ask and len(self._due) <= BATCH and self._channel is not None:
            batch: List[Want] = []
            while self._to_ask and len(batch) < BATCH:
                digest = self._to_ask.popleft()
                offset = 0
                if self._incoming is not None and self._incoming.digest == digest:
                    offset = self._incoming.size
                batch.append((digest, offset))
                self._due.append(digest)
            self._channel.send(wants(batch))

    def _on_data(self, data: memoryview) -> None:
        self._listen()
        try:
            for kind, piece in self._reader.feed(data):
                if self._over or self._channel is None:
                    return
                if kind == DATA:
                    self._take(piece)
                elif kind == MISSING:
                    self._elsewhere.append(self._asked_file())
                    self._due.popleft()
                    self._advance()
                elif kind == AGAIN:
                    self._begin_anew()
        except WireError as error:
            self._next_source(str(error))
        except DigestError:
            self._digest_mismatch()
        except OSError as error:
            self._over = True
            self._hang_up()
            self._broken(error)

    def _asked_file(self) -> str:
        if not self._due:
            raise WireError("more data than requested")
        return self._due[0]

    def _take(self, piece: memoryview) -> None:
        while piece:
            digest = self._asked_file()
            size = self._sizes[digest]
            incoming = self._incoming
            if incoming is None and len(piece) >= size:
                self._store_small(digest, piece[:size])
                piece = piece[size:]
                self._due.popleft()
                self._advance()
                continue
            if incoming is None:
                incoming = self._incoming = self._arrivals.begin(digest)
            if incoming.dropped or incoming.digest != digest:
                raise OSError(errno.ECANCELED, "a file was removed while it was being received")
            part = piece[: size - incoming.size]
            piece = piece[len(part) :]
            self._arrivals.write(incoming, incoming.size, part)
            if incoming.size == size:
                self._arrivals.publish(incoming)
                self._finished(digest, size)
                self._due.popleft()
                self._advance()

    def _store_small(self, digest: str, data: memoryview) -> None:
        self._arrivals.put(digest, data)
        self._finished(digest, len(data))

    def _finished(self, digest: str, size: int) -> None:
        self._incoming = None
        self._clean = True
        self._arrived(digest, size)

    def _advance(self) -> None:
        """Finish a file; request more, or end."""
        if self._over or self._channel is None:
            return
        if self._to_ask:
            self._ask()
        elif not self._due:
            self._next_source(
                "" if not self._elsewhere else "%d files are missing there" % len(self._elsewhere)
            )

    def _begin_anew(self) -> None:
        """Restart a file, because the source found that its own bytes were wrong."""
        self._asked_file()
        if self._incoming is not None:
            self._arrivals.drop(self._incoming.digest)
            self._incoming = None
        self._clean = True

    def _digest_mismatch(self) -> None:
        """Handle a digest mismatch of the current file."""
        self._incoming = None
        if self._clean:
            self._next_source("it sent corrupt data")
        else:  # some bytes came from an earlier source: retry with this one alone
            self._sources.appendleft(_endpoint(self._here))
            self._next_source("this source or an earlier one sent corrupt data")


def _endpoint(text: str) -> Source:
    address, _, port = text.rpartition(":")
    return address, int(port)
