# SPDX-License-Identifier: Apache-2.0
"""A trainer's connections to all its servers over ZeroMQ. `inproc` is the twin without sockets."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

import zmq

from paddle.errors import WireError
from paddle.pserver.doorbells import LINGER_MS, Doorbells
from paddle.pserver.exchange import Incoming
from paddle.pserver.heap import keep_message_memory
from paddle.pserver.keys import WireKeys
from paddle.pserver.link import RENEW_S, Link
from paddle.pserver.message import DamagedError, Frame, Message, Verb, decode

_log = logging.getLogger(__name__)


class Links:
    """A client's connections to its servers, by index. Not thread-safe."""

    def __init__(self, endpoints: Sequence[str], keys: WireKeys | None, patience_s: float = 0.0) -> None:
        """Begin to connect to each "ip:port"; nobody need listen there yet.

        Args:
            endpoints: "ip:port" of each server.
            keys: None: the wire is plain.
            patience_s: how long a server that was there may be gone before it is lost.

        Raises:
            WireError: an endpoint cannot be read.
        """
        self.endpoints = tuple(endpoints)
        keep_message_memory()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
        self._bells = Doorbells()
        self._links: list[Link] = []
        try:
            for endpoint in endpoints:
                self._links.append(Link(self._context, self._bells, endpoint, keys, patience_s))
        except zmq.ZMQError as error:
            self.close()
            raise WireError(
                f"pserver endpoint {endpoint!r}: {error.strerror}; expected ip:port", endpoint
            ) from error

    def send(self, index: int, message: Message) -> None:
        """Queue a message; its arrays must not change before the reply is there.

        What cannot be queued is as good as lost on the way: the connection broke and is made anew.
        """
        with contextlib.suppress(zmq.Again):
            self._links[index].send(message)

    def receive(self, timeout_s: float) -> Incoming | None:
        """Wait for the next message or healed connection; None when the time is over.

        Raises:
            PserverLost: a server's connection broke and did not come back; `endpoint` says whose.
            WireError: a server refused our key, or speaks another wire version.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            for index, link in enumerate(self._links):
                if link.watch():
                    return Incoming(index, None)
                frames = link.take()
                if frames is not None:
                    return Incoming(index, self._read(frames))
            rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                return None
            # A broken link is looked at again soon; whole ones wake us by themselves.
            any_down = any(link.needs_care for link in self._links)
            self._bells.wait(min(rest_s, RENEW_S) if any_down else rest_s)

    def _read(self, frames: Sequence[Frame]) -> Message | None:
        try:
            return decode(frames)
        except DamagedError as error:
            _log.warning("%s; asking again", error)
            damaged = error.message
            if damaged is None or damaged.verb is not Verb.VALUES:
                return None
            return replace(damaged, verb=Verb.REPEAT, value=damaged.value + 1, sections=())

    def hint(self, index: int) -> str:
        """Return what may be the matter with a server that does not answer."""
        return self._links[index].liveness.hint

    def close(self) -> None:
        """Close all connections; messages on their way get half a second."""
        for link in self._links:
            link.close(LINGER_MS)
        self._context.term()
