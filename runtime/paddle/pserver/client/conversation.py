# SPDX-License-Identifier: Apache-2.0
"""One request to each server and its answers, as a state machine: requests are repeated until they are answered.

Because of its number, a request can safely be sent again after a connection broke. Every wait is bounded: a server that
is silent for `timeout_s` is considered lost. A server can wait for other trainers longer than that, as long as it keeps
reporting so. A server that makes no progress, although it is not waiting, is considered lost after `timeout_s`, too.
`Conversation` is pure: it has no sockets and takes the time as an argument, so that tests can replay all event orders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from paddle.errors import ConfigError, PserverError, PserverLost, WaitTimeout, WireError
from paddle.pserver.client.request import Incoming, Request
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Error, Record, Repeat, StateLost, Waits
from paddle_node.contract.classes import NamedTuple

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
