# SPDX-License-Identifier: Apache-2.0
"""The exchange of requests between a trainer and its servers: one request at a time per server."""

from __future__ import annotations

import math
import os
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from paddle.errors import ConfigError, PserverError
from paddle.pserver.client.conversation import Conversation, Outgoing, TimeLimits
from paddle.pserver.client.request import Incoming, Request
from paddle.pserver.transports.transport import SharedSlabs
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Attach, Hello, Leave


class Network(Protocol):
    """The interface of `Links` that an exchange uses; tests implement it without sockets."""

    endpoints: tuple[str, ...]

    def send(self, index: int, message: Message) -> None:
        """Queue a message to one server."""

    def receive(self, timeout_s: float) -> Incoming | None:
        """Wait for the next message or restored connection; None after the timeout."""

    def expect(self, index: int, request: Request | None) -> None:
        """Set the request whose values a server sends next, replacing the earlier one; None means no values are due."""

    def attach(self, index: int, hello: Message, size: int | None) -> SharedSlabs | None:
        """Share memory with a server on this node, if possible."""

    def is_attached(self, index: int) -> bool:
        """Return whether memory is still shared with a server."""

    def hint(self, index: int) -> str:
        """Return a possible reason why a server does not answer, or ""."""

    def close(self) -> None:
        """Close the connections to all servers."""


class Exchange:
    """A trainer process's exchange of requests and replies with all its servers. Not thread-safe.

    Attributes:
        wait_s: maximum time of one exchange, in seconds.
        used: the indices of the servers that hold a part of the model.
    """

    def __init__(self, network: Network, trainer_id: int, timeout_s: float) -> None:
        self._network, self._trainer, self._timeout_s = network, trainer_id, timeout_s
        self._session = secrets.randbits(64)
        self._hello = Hello()
        self._request = 0
        self._stamps = [0] * len(network.endpoints)
        self._broken = ""
        self._is_closed = self._is_cut = False
        self._process = os.getpid()
        # Held during an exchange: sockets and their poller are for one thread at a time.
        self._turn = threading.Lock()
        self.wait_s = math.inf
        self.used: Sequence[int] = range(len(network.endpoints))
        self._limits = TimeLimits(timeout_s, self.wait_s)

    def hello(self, num_trainers: int, *, takes_over: bool = False) -> None:
        """Open the session with every server; see `verbs.Hello`.

        Raises:
            PserverLost: a server did not answer within `timeout_s`.
            PserverError: a server refused the session.
        """
        hello = Message(Hello(num_trainers, takes_over))
        for index, reply in self.run(dict.fromkeys(range(len(self._stamps)), hello)).items():
            self._stamps[index] = reply.stamp
        self._hello = Hello(num_trainers)  # repeated, it must not replace a newer process

    def agree_on_list(self) -> None:
        """Notify every server of its number in the list of servers.

        Raises:
            PserverLost: see `hello`.
            PserverError: another trainer has a different list.
        """
        self._hello = self._hello._replace(listed=len(self._stamps))
        self.run({index: self._greeting(index) for index in range(len(self._stamps))})

    def run(self, requests: Mapping[int, Message]) -> dict[int, Message]:
        """Send one request to each server and wait for all replies.

        Raises:
            PserverLost: a server is unreachable; `endpoint` names it.
            WaitTimeout: the exchange took longer than `wait_s`, and is aborted.
            PserverError: a server refused, an earlier exchange was aborted halfway, or this exchange is closed.
        """
        return self.carry({index: Request(message) for index, message in requests.items()})

    def carry(self, requests: Mapping[int, Request]) -> dict[int, Message]:
        """Run requests that may be too large for one message; see `run`.

        Raises:
            PserverLost, WaitTimeout, PserverError: see `run`.
            ConfigError: part of a request cannot be sent; nothing was changed, and the next exchange can begin.
        """
        if not self._turn.acquire(blocking=False):
            raise PserverError(
                "this client is being used by two threads at once, or by a signal handler: give each "
                "thread its own client, or hold a lock around its calls"
            )
        try:
            return self._carry(requests)
        finally:
            self._turn.release()

    def _carry(self, requests: Mapping[int, Request]) -> dict[int, Message]:
        self.check_open()
        if self._broken:
            raise PserverError(
                f"this client cannot continue after an error: {self._broken}; create a new one"
            )
        self._request += 1
        self._broken = "an exchange with the pservers was interrupted"
        try:
            for index, request in requests.items():
                request.head = self._numbered(index, request.head)
                self._network.expect(index, request)
                for each in request.begin():
                    self._network.send(index, each)
            replies = self._converse(requests)
        except ConfigError:
            # No server has the complete push if a message cannot be sent; the next push withdraws the received part.
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

    def attach(self, index: int, size: int | None) -> SharedSlabs | None:
        """Share memory with a server of this node; see `Links.attach`."""
        return self._network.attach(index, self._numbered(index, Message(Attach())), size)

    def leave(self, timeout_s: float) -> None:
        """Notify every server that this trainer leaves the job, even after an error; wait at most `timeout_s` seconds.

        If another thread is in an exchange, that exchange is aborted.

        Raises:
            PserverError: a server could not be notified.
        """
        self._is_cut = True
        try:
            if not self.wait_for_turn(timeout_s):
                raise PserverError("another thread is in the middle of an exchange with the pservers")
        finally:
            self._is_cut = False
        self._broken, self._timeout_s, self.wait_s = "", timeout_s, timeout_s
        idle = [index for index in range(len(self._stamps)) if index not in self.used]
        try:
            self.run(dict.fromkeys(self.used, Message(Leave())))
        finally:
            self._broken = ""
            # An idle server that was restarted without its state had nothing to lose.
            for index, reply in self.run({index: self._greeting(index) for index in idle}).items():
                self._stamps[index] = reply.stamp
            self.run(dict.fromkeys(idle, Message(Leave())))

    def close(self) -> None:
        """Close all connections. If another thread is in an exchange, they stay open until the process exits."""
        self._is_closed = True
        if os.getpid() == self._process and self.wait_for_turn(0):
            self._network.close()

    def check_open(self) -> None:
        """Check that this exchange is usable. Raises PserverError if it was closed or the process has forked."""
        if self._is_closed:
            raise PserverError("this client is closed; create a new one to continue")
        if os.getpid() != self._process:
            raise PserverError(
                f"this client belongs to process {self._process}, from which this process was forked: "
                "create a new client in this process"
            )

    def wait_for_turn(self, timeout_s: float) -> bool:
        """Wait until no thread is in an exchange; return False if the wait timed out."""
        if is_free := self._turn.acquire(timeout=timeout_s):
            self._turn.release()
        return is_free

    def _converse(self, requests: Mapping[int, Request]) -> dict[int, Message]:
        """Run one exchange: send the requests and wait for all replies."""
        now = time.monotonic()
        limits = self._limits
        if (limits.timeout_s, limits.wait_s) != (self._timeout_s, self.wait_s):
            limits = self._limits = TimeLimits(self._timeout_s, self.wait_s)
        conversation = Conversation(requests, self._network.endpoints, limits, now, len(self.used))
        while not conversation.is_over:
            if self._is_cut:
                raise PserverError("this client was closed in the middle of an exchange")
            incoming = self._network.receive(conversation.rest_s(now))
            now = time.monotonic()
            out: Iterable[Outgoing]
            if incoming is None:
                out = conversation.check_deadlines(
                    now, self._network.hint, lambda index: bool(self._stamps[index])
                )
            else:
                if incoming.message is None and incoming.server not in requests:
                    # An idle server would consider this process disconnected until it leaves.
                    greeting = self._greeting(incoming.server)
                    self._network.send(incoming.server, self._numbered(incoming.server, greeting))
                out = conversation.hear(incoming, now)
            for index, message in out:
                self._network.send(index, message)
        return conversation.replies

    def _greeting(self, index: int) -> Message:
        return Message(self._hello._replace(number=index if self._hello.listed else 0))

    def _numbered(self, index: int, message: Message) -> Message:
        """Return a message with the numbers of this session and request."""
        return message.numbered(self._trainer, self._session, self._request, self._stamps[index])
