# SPDX-License-Identifier: Apache-2.0
"""The exchange of requests between a trainer and its servers: one at a time per server, repeated until answered.

Because of its number, a request can safely be sent again after a connection broke. Every wait is bounded: a server that
is silent for `timeout_s` is considered lost. A server can wait for other trainers longer than that, as long as it keeps
reporting so. A server that makes no progress, although it is not waiting, is considered lost after `timeout_s`, too.
`Conversation` is pure: it has no sockets and takes the time as an argument, so that tests can replay all event orders.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from paddle.errors import ConfigError, PserverError, PserverLost, WaitTimeout, WireError
from paddle.pserver.client.request import Incoming, Request
from paddle.pserver.transports.transport import SharedSlabs
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Attach, Error, Hello, Leave, Record, Repeat, StateLost, Waits

_log = logging.getLogger(__name__)

_ASK_AFTER_S = 5.0
_REPORT_EVERY_S = 30.0
_MAX_REPEATS = 20
_LATE_S = 1.0  # longer than a wait takes on a busy machine
_REFUSALS: Mapping[type[Record], type[PserverError]] = {Error: PserverError, StateLost: PserverLost}


class Outgoing(NamedTuple):
    """A message to send, and the index of its server."""

    server: int
    message: Message


class TimeLimits:
    """Time limits of one exchange, in seconds: for a server's silence, and for the whole exchange."""

    def __init__(self, timeout_s: float, wait_s: float) -> None:
        self.timeout_s, self.wait_s = timeout_s, wait_s
        self.ask_after_s = min(_ASK_AFTER_S, wait_s / 2, timeout_s / 3)
        self.check_every_s = self.ask_after_s / 4


class Conversation:
    """The protocol state machine of one exchange; the caller must send every message that its methods return.

    Attributes:
        replies: the replies that have arrived, by server.
    """

    def __init__(
        self,
        requests: Mapping[int, Request],
        endpoints: Sequence[str],
        limits: TimeLimits,
        now: float,
        num_used: int | None = None,
    ) -> None:
        """Prepare the requests without sending any.

        Args:
            requests: the requests by server, with numbered heads.
            endpoints: "ip:port" of all servers, for errors.
            num_used: see `Exchange`; None means all servers.
        """
        self._num_used = len(endpoints) if num_used is None else num_used
        self._endpoints, self._limits, self._open = endpoints, limits, dict(requests)
        for request in requests.values():
            request.heard_at = request.asked_at = now
        self._ends_at, self._reported_at, self._last_report = now + limits.wait_s, now, ""
        self._awake_at = now
        self.replies: dict[int, Message] = {}

    @property
    def is_over(self) -> bool:
        """Return whether every server has answered, and all values have arrived."""
        return not self._open

    def rest_s(self, now: float) -> float:
        """Return the number of seconds to wait for a message before calling `check_deadlines`.

        Raises:
            WaitTimeout: the exchange has reached its total time limit.
        """
        rest_s = self._ends_at - now
        if rest_s <= 0:
            raise WaitTimeout(
                f"gave up after {self._limits.wait_s:g} s: "
                f"{self._last_report or 'the pservers have not reported what they are waiting for'}"
            )
        return min(self._limits.check_every_s, rest_s)

    def hear(self, incoming: Incoming, now: float) -> Iterator[Outgoing]:
        """Process a received message; return the messages to send next.

        Raises:
            PserverError, PserverLost: the server refuses.
            ConfigError: the only server rejects a gradient; it changed nothing, and the next request can be sent.
            WireError: too much was lost, or the message is malformed.
        """
        self._wake(now)
        server, message = incoming
        request = self._open.get(server)
        if request is None:
            return
        if message is None:
            yield from self._repeat(server, request, request.again())
        elif isinstance(message.record, Repeat):
            if message.request in (0, request.head.request):
                yield from self._repeat(server, request, request.repeat(message.record.chunk))
        elif message.session == request.head.session and message.request == request.head.request:
            if isinstance(message.record, Waits):
                self._record_wait(server, request, message.record, message.section("").as_text(), now)
                return
            if type(message.record) in _REFUSALS:
                self._refuse(server, message)
            for each in request.take(message):
                yield Outgoing(server, each)
            request.record_message(now)
            if request.is_over:
                assert request.reply is not None
                self.replies[server] = request.reply
                del self._open[server]

    def check_deadlines(
        self, now: float, hint: Callable[[int], str], knows: Callable[[int], bool]
    ) -> Iterator[Outgoing]:
        """Check the deadlines after a period without messages; return the messages to send next.

        Args:
            hint: returns a possible reason why a server does not answer.
            knows: returns whether a server has answered hello; otherwise hello is sent to it again.

        Raises:
            PserverLost: a server is silent.
            PserverError: a server is alive, but the request makes no progress, and the server is not waiting for
                another process.
        """
        self._wake(now)
        for server, request in self._open.items():
            if request.has_moved:
                request.record_message(now)
                request.asked_at = now  # requesting data that is already in transit would only send it twice
            silent_s = now - request.heard_at
            if silent_s > self._limits.timeout_s:
                endpoint = self._endpoints[server]
                raise PserverLost(
                    f"pserver {endpoint} did not answer for {silent_s:.0f} s; {hint(server)}", endpoint
                )
            if now - request.asked_at > self._limits.ask_after_s:
                request.asked_at = now
                for each in request.inquire() if knows(server) else request.again():
                    yield Outgoing(server, each)

    def _wake(self, now: float) -> None:
        """Extend all deadlines by the time in which this process was stopped or its machine was suspended."""
        slept_s, self._awake_at = now - self._awake_at, now
        if slept_s > 2 * self._limits.check_every_s + _LATE_S:
            self._ends_at += slept_s
            for request in self._open.values():
                request.heard_at += slept_s
                if request.idle_since is not None:
                    request.idle_since += slept_s

    def _repeat(self, server: int, request: Request, messages: Iterator[Message]) -> Iterator[Outgoing]:
        request.repeats += 1
        if request.repeats > _MAX_REPEATS:
            endpoint = self._endpoints[server]
            raise WireError(f"pserver {endpoint}: {_MAX_REPEATS} messages in a row were lost", endpoint)
        for each in messages:
            yield Outgoing(server, each)

    def _record_wait(self, server: int, request: Request, said: Waits, text: str, now: float) -> None:
        """Process a server's report of the trainers that it is waiting for."""
        endpoint = self._endpoints[server]
        request.record_message(now)
        if not said.is_idle:
            request.idle_since = None
        elif request.idle_since is None:
            request.idle_since = now
        elif now - request.idle_since > self._limits.timeout_s:
            verb = request.head.verb.name
            raise PserverError(
                f"pserver {endpoint} responds and is not waiting for a trainer, but the request {verb} "
                f"has made no progress for {now - request.idle_since:.0f} s ({request.progress}). The "
                "connection between trainer and pserver is faulty: restart the job, and please report "
                "this with both logs",
                endpoint,
            )
        self._last_report = f"pserver {endpoint}: {text}"
        if now - self._reported_at > _REPORT_EVERY_S:
            self._reported_at = now
            _log.warning("%s", self._last_report)

    def _refuse(self, server: int, reply: Message) -> None:
        """Raise the error in a server's reply."""
        endpoint, text = self._endpoints[server], reply.section("").as_text()
        if isinstance(reply.record, Error) and reply.record.is_non_finite and self._num_used == 1:
            raise ConfigError(text)
        raise _REFUSALS[type(reply.record)](f"pserver {endpoint}: {text}", endpoint)


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
        num_used: the number of servers that hold a part of the model.
    """

    def __init__(self, network: Network, trainer_id: int, timeout_s: float) -> None:
        self._network, self._trainer, self._timeout_s = network, trainer_id, timeout_s
        self._session = secrets.randbits(64)
        self._hello = Message(Hello(0, False))
        self._request = 0
        self._stamps = [0] * len(network.endpoints)
        self._broken = ""
        self._is_closed = self._is_cut = False
        self._process = os.getpid()
        # Held during an exchange: sockets and their poller are for one thread at a time.
        self._turn = threading.Lock()
        self.wait_s = math.inf
        self.num_used = len(network.endpoints)
        self._limits = TimeLimits(timeout_s, self.wait_s)

    def hello(self, num_trainers: int, *, takes_over: bool = False) -> None:
        """Open the session with every server; see `verbs.Hello`.

        Raises:
            PserverLost: a server did not answer within `timeout_s`.
            PserverError: a server refused the session.
        """
        self._hello = Message(Hello(num_trainers, takes_over))
        for index, reply in self.run(dict.fromkeys(range(len(self._stamps)), self._hello)).items():
            self._stamps[index] = reply.stamp

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
        self.run(dict.fromkeys(range(len(self._stamps)), Message(Leave())))

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
        conversation = Conversation(requests, self._network.endpoints, limits, now, self.num_used)
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
                    self._network.send(incoming.server, self._numbered(incoming.server, self._hello))
                out = conversation.hear(incoming, now)
            for index, message in out:
                self._network.send(index, message)
        return conversation.replies

    def _numbered(self, index: int, message: Message) -> Message:
        """Return a message with the numbers of this session and request."""
        return message.numbered(self._trainer, self._session, self._request, self._stamps[index])
