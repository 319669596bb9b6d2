# SPDX-License-Identifier: Apache-2.0
"""A client's requests: one to each of several servers, sent together, all replies awaited together.

Every wait is bounded: see `conversation`. A request is numbered, so that sending it again after a broken connection
does no harm.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from paddle.errors import ConfigError, PserverError
from paddle.pserver.client.conversation import Conversation, Incoming, Outgoing, Patience
from paddle.pserver.client.request import Flow, Request
from paddle.pserver.transports.transport import SharedSlabs
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Attach, Hello, Leave, Status

_ANY = Message(Status())


class Network(Protocol):
    """What an exchange needs of `Links`; tests give it servers without sockets."""

    endpoints: tuple[str, ...]

    def send(self, index: int, message: Message) -> None:
        """Queue a message to one server."""

    def receive(self, timeout_s: float) -> Incoming | None:
        """Wait for the next message or healed connection; None when the time is over."""

    def expect(self, index: int, flow: Flow | None) -> None:
        """Tell what values are due from a server, instead of whatever was told before; None: none are."""

    def attach(self, index: int, hello: Message, size: int) -> SharedSlabs | None:
        """Share memory with a server of this node."""

    def is_attached(self, index: int) -> bool:
        """Return whether memory is still shared with a server."""

    def hint(self, index: int) -> str:
        """Return what may be the matter with a server that does not answer."""

    def close(self) -> None:
        """Close all connections."""


class Exchange:
    """The session of one trainer process with all its servers. Not thread-safe.

    Attributes:
        wait_s: how long one exchange may take altogether.
    """

    def __init__(self, network: Network, trainer_id: int, timeout_s: float) -> None:
        self._network, self._trainer, self._timeout_s = network, trainer_id, timeout_s
        self._session = secrets.randbits(64)
        self._request = 0
        self._stamps = [0] * len(network.endpoints)
        self._broken = ""
        self._is_closed = False
        self._patience = Patience(timeout_s, math.inf)
        self._turn = (
            threading.Lock()
        )  # held during an exchange: sockets and their poller are for one thread at a time
        self.wait_s = math.inf

    def hello(self, num_trainers: int, *, takes_over: bool = False) -> None:
        """Open the session with every server.

        Args:
            num_trainers: of the job.
            takes_over: see `verbs.Hello`.

        Raises:
            PserverLost: one did not answer within `timeout_s`.
            PserverError: one refused us.
        """
        hello = Message(Hello(num_trainers, takes_over))
        for index, reply in self.run(dict.fromkeys(range(len(self._stamps)), hello)).items():
            self._stamps[index] = reply.stamp

    def run(self, requests: Mapping[int, Message]) -> dict[int, Message]:
        """Send each server its request and wait for all replies.

        Raises:
            PserverLost: a server is gone; `endpoint` says which.
            WaitTimeout: it took longer than `wait_s`; the exchange is cut off.
            PserverError: a server refused, an earlier exchange was cut off in the middle, or this was closed.
        """
        return self.carry({index: Request(message) for index, message in requests.items()})

    def carry(self, requests: Mapping[int, Request]) -> dict[int, Message]:
        """Do what `run` does with requests that may be too large for a message.

        Raises:
            PserverLost, WaitTimeout, PserverError: see `run`.
            ConfigError: part of a request cannot be sent; nothing was changed, and the next exchange may come.
        """
        if not self._turn.acquire(blocking=False):
            raise PserverError(
                "this client is used by two threads at once, or by a signal handler: give each thread a client of its "
                "own, or take a lock around its calls"
            )
        try:
            return self._carry(requests)
        finally:
            self._turn.release()

    def _carry(self, requests: Mapping[int, Request]) -> dict[int, Message]:
        self.check_open()
        if self._broken:
            raise PserverError(f"this client cannot go on after an error: {self._broken}")
        self._request += 1
        self._broken = "an exchange with the pservers was interrupted"
        try:
            for index, request in requests.items():
                self._network.expect(index, Flow(request, self._own(index, request.head)))
                for each in request.begin():
                    self._network.send(index, self._own(index, each))
            replies = self._converse(requests)
        except ConfigError:
            # Of what cannot be sent no server has the whole: the next push to it takes back what there is.
            self._broken = ""
            raise
        except PserverError as error:
            self._broken = str(error)
            raise
        finally:
            for index in requests:
                self._network.expect(index, None)
        self._broken = ""
        return replies

    def attach(self, index: int, size: int) -> SharedSlabs | None:
        """Share memory with a server of this node; see `Links.attach`."""
        return self._network.attach(index, self._own(index, Message(Attach())), size)

    def leave(self, timeout_s: float) -> None:
        """Tell every server that this trainer goes, whatever happened before; waits at most `timeout_s`.

        Raises:
            PserverError: not every server could be told.
        """
        if not self.wait_for_turn(timeout_s):
            raise PserverError("another thread is in the middle of an exchange with the pservers")
        self._broken, self._timeout_s, self.wait_s = "", timeout_s, math.inf
        self.run(dict.fromkeys(range(len(self._stamps)), Message(Leave())))

    def close(self) -> None:
        """Close all connections, unless a thread is in an exchange: then the process's end does."""
        self._is_closed = True
        if self.wait_for_turn(0):
            self._network.close()

    def check_open(self) -> None:
        """Raise an error after `close`.

        Raises:
            PserverError: it is closed.
        """
        if self._is_closed:
            raise PserverError("this client is closed; create another one to continue")

    def wait_for_turn(self, timeout_s: float) -> bool:
        """Wait until no thread is in the middle of an exchange; return whether that is so."""
        if is_free := self._turn.acquire(timeout=timeout_s):
            self._turn.release()
        return is_free

    def _converse(self, requests: Mapping[int, Request]) -> dict[int, Message]:
        """Wait for all replies."""
        now = time.monotonic()
        own, patience = self._own(0, _ANY), self._patience
        if (patience.timeout_s, patience.wait_s) != (self._timeout_s, self.wait_s):
            patience = self._patience = Patience(self._timeout_s, self.wait_s)
        conversation = Conversation(requests, own, self._network.endpoints, patience, now)
        while not conversation.is_over:
            conversation.check_end(now)
            incoming = self._network.receive(conversation.rest_s(now))
            now = time.monotonic()
            if incoming is None:
                self._send(
                    conversation.look(now, self._network.hint, lambda index: bool(self._stamps[index]))
                )
            else:
                self._send(conversation.hear(incoming, now))
        return conversation.replies

    def _send(self, messages: Iterable[Outgoing]) -> None:
        for index, message in messages:
            self._network.send(index, self._own(index, message))

    def _own(self, index: int, message: Message) -> Message:
        """Return a message with the numbers of this session and request."""
        return message.numbered(self._trainer, self._session, self._request, self._stamps[index])
