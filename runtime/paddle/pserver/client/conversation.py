# SPDX-License-Identifier: Apache-2.0
"""One request to each of several servers at once: what is sent, what of what comes counts, when it is over.

Pure: it has no sockets and is told the time, so that every order of events can be played. A server that is silent
for `timeout_s` is lost. One that waits for other trainers may take long, as long as it says so; one that says that
nothing keeps it, and yet does not go on, has `timeout_s` as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from paddle.errors import ConfigError, PserverError, PserverLost, WaitTimeout, WireError
from paddle.pserver.client.request import Request
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Error, Repeat, Values, Verb, Waits

_log = logging.getLogger(__name__)

_ASK_AFTER_S = 5.0
_TELL_EVERY_S = 30.0
_MAX_REPEATS = 20
_LATE_S = 1.0  # beyond what a busy machine makes of a wait
_REFUSALS: Mapping[Verb, type[PserverError]] = {Verb.ERROR: PserverError, Verb.STATE_LOST: PserverLost}


class Incoming(NamedTuple):
    """What a network found: a message of a server, or None when a request must be sent to it again."""

    server: int
    message: Message | None


class Outgoing(NamedTuple):
    """A message for one server, not numbered yet."""

    server: int
    message: Message


class Patience:
    """How long a conversation waits, in seconds: for a silent server, and altogether.

    Attributes:
        ask_after_s: after what silence a server is asked what keeps it.
        look_every_s: how often to look at the clock while nothing is heard.
    """

    def __init__(self, timeout_s: float, wait_s: float) -> None:
        self.timeout_s, self.wait_s = timeout_s, wait_s
        self.ask_after_s = min(_ASK_AFTER_S, wait_s / 2, timeout_s / 3)
        self.look_every_s = self.ask_after_s / 4


class _Peer:
    """What is known of one server that owes a reply."""

    __slots__ = ("asked_at", "heard_at", "idle_since", "request")

    def __init__(self, request: Request, now: float) -> None:
        self.request = request
        self.heard_at = self.asked_at = now
        self.idle_since: float | None = None  # it says that nothing keeps it, and nothing moved since

    def hears(self, now: float) -> None:
        """Note that it said something, and whether the request got on."""
        self.heard_at = now
        if self.request.has_moved:
            self.request.has_moved, self.idle_since = False, None


class Conversation:
    """The requests of one exchange; give every message that is returned to the network.

    Attributes:
        replies: by server, as far as they are here.
    """

    def __init__(
        self,
        requests: Mapping[int, Request],
        own: Message,
        endpoints: Sequence[str],
        patience: Patience,
        now: float,
    ) -> None:
        """Begin nothing yet.

        Args:
            requests: by server.
            own: any message with the session and the number of this request.
            endpoints: "ip:port" of all servers, for errors.
            patience: see there.
            now: monotonic seconds.
        """
        self._own, self._endpoints, self._patience = own, endpoints, patience
        self._peers = {server: _Peer(request, now) for server, request in requests.items()}
        self._ends_at, self._told_at, self._told = now + patience.wait_s, now, ""
        self._awake_at = now
        self.replies: dict[int, Message] = {}

    @property
    def is_over(self) -> bool:
        """Whether every server has answered, and all values are here."""
        return not self._peers

    def rest_s(self, now: float) -> float:
        """Return how long to wait for something to hear before `look`."""
        return min(self._patience.look_every_s, self._ends_at - now)

    def hear(self, incoming: Incoming, now: float) -> Iterator[Outgoing]:
        """Take a message; what to send next.

        Raises:
            PserverError, PserverLost: the server refuses.
            ConfigError: the only server refuses a gradient; it changed nothing, and the next request may come.
            WireError: too much was lost, or what came makes no sense.
        """
        self._wake(now)
        server, message = incoming
        peer = self._peers.get(server)
        if peer is None:
            return
        if message is None:
            yield from self._repeat(server, peer.request.again)
        elif isinstance(message.record, Repeat):
            if message.request in (0, self._own.request):
                which = message.record.chunk
                yield from self._repeat(server, lambda: peer.request.repeat(which))
        elif (message.session, message.request) == (self._own.session, self._own.request):
            if isinstance(message.record, Waits):
                self._hear_wait(server, message.record, message.section("").as_text(), now)
                return
            if not isinstance(message.record, Values):
                self._accept(server, message)
            for each in peer.request.take(message):
                yield Outgoing(server, each)
            peer.hears(now)
            if peer.request.is_over:
                assert peer.request.reply is not None
                self.replies[server] = peer.request.reply
                del self._peers[server]

    def look(
        self, now: float, hint: Callable[[int], str], knows: Callable[[int], bool]
    ) -> Iterator[Outgoing]:
        """Look at the clock, after nothing was heard for a while; what to send next.

        Args:
            now: monotonic seconds.
            hint: says what may be the matter with a server.
            knows: whether a server said hello already; else it is told hello once more.

        Raises:
            PserverLost: a server is silent.
            PserverError: a server lives, but the request does not get on, and nobody else is to blame.
        """
        self._wake(now)
        for server, peer in self._peers.items():
            if peer.request.has_moved:
                peer.hears(now)
            silent_s = now - peer.heard_at
            if silent_s > self._patience.timeout_s:
                endpoint = self._endpoints[server]
                raise PserverLost(
                    f"pserver {endpoint} did not answer for {silent_s:.0f} s; {hint(server)}", endpoint
                )
            if now - peer.asked_at > self._patience.ask_after_s:
                peer.asked_at = now
                for each in peer.request.inquire() if knows(server) else peer.request.again():
                    yield Outgoing(server, each)

    def check_end(self, now: float) -> None:
        """Raise WaitTimeout if it takes longer than it may altogether."""
        if now >= self._ends_at:
            raise WaitTimeout(
                f"gave up after {self._patience.wait_s:g} s: "
                f"{self._told or 'the pservers have not said what they wait for'}"
            )

    def _wake(self, now: float) -> None:
        """Let no server pay for the time in which this very process was stopped, or its machine asleep."""
        slept_s, self._awake_at = now - self._awake_at, now
        if slept_s > 2 * self._patience.look_every_s + _LATE_S:
            self._ends_at += slept_s
            for peer in self._peers.values():
                peer.heard_at += slept_s
                if peer.idle_since is not None:
                    peer.idle_since += slept_s

    def _repeat(self, server: int, messages: Callable[[], Iterator[Message]]) -> Iterator[Outgoing]:
        request = self._peers[server].request
        request.repeats += 1
        if request.repeats > _MAX_REPEATS:
            endpoint = self._endpoints[server]
            raise WireError(f"pserver {endpoint}: {_MAX_REPEATS} messages in a row were lost", endpoint)
        for each in messages():
            yield Outgoing(server, each)

    def _hear_wait(self, server: int, said: Waits, text: str, now: float) -> None:
        """Take what a server says that it waits for."""
        peer, endpoint = self._peers[server], self._endpoints[server]
        peer.hears(now)
        if not said.is_idle:
            peer.idle_since = None
        elif peer.idle_since is None:
            peer.idle_since = now
        elif now - peer.idle_since > self._patience.timeout_s:
            verb = peer.request.head.verb.name
            raise PserverError(
                f"pserver {endpoint} lives and waits for nobody, but {verb} has not got on for "
                f"{now - peer.idle_since:.0f} s ({peer.request.progress}): this is a fault of the wire between "
                "trainer and pserver; restart the job, and please report it with both logs",
                endpoint,
            )
        self._told = f"pserver {endpoint}: {text}"
        if now - self._told_at > _TELL_EVERY_S:
            self._told_at = now
            _log.warning("%s", self._told)

    def _accept(self, server: int, reply: Message) -> None:
        """Raise what a server refuses."""
        if reply.verb not in _REFUSALS:
            return
        endpoint, text = self._endpoints[server], reply.section("").as_text()
        if isinstance(reply.record, Error) and reply.record.is_strange and len(self._endpoints) == 1:
            raise ConfigError(text)
        raise _REFUSALS[reply.verb](f"pserver {endpoint}: {text}", endpoint)
