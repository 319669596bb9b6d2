# SPDX-License-Identifier: Apache-2.0
"""A client's requests: one to each of several servers, sent together, all replies awaited together.

Every wait is bounded: a server that is silent for `timeout_s` is lost. One that waits for other trainers is
asked now and then, and may take `wait_s`, as long as it says so. A request is numbered, so that sending it again
after a broken connection does no harm.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from paddle.errors import ConfigError, PserverError, PserverLost, WaitTimeout, WireError
from paddle.pserver.message import STRANGE, Message, Verb
from paddle.pserver.transfer import Lane, Transfer
from paddle.pserver.within_node import SharedSlabs

_log = logging.getLogger(__name__)

_ASK_AFTER_S = 5.0
_TELL_EVERY_S = 30.0
_MAX_REPEATS = 20
_REFUSALS: Mapping[Verb, type[PserverError]] = {Verb.ERROR: PserverError, Verb.STATE_LOST: PserverLost}


class Incoming(NamedTuple):
    """What `Network.receive` found: a message of a server, or None when a request must be sent to it again."""

    server: int
    message: Message | None


class Network(Protocol):
    """What an exchange needs of `Links`; tests give it servers without sockets."""

    endpoints: tuple[str, ...]

    def send(self, index: int, message: Message) -> None:
        """Queue a message to one server."""

    def receive(self, timeout_s: float) -> Incoming | None:
        """Wait for the next message or healed connection; None when the time is over."""

    def expect(self, index: int, lane: Lane | None) -> None:
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
        self.wait_s = math.inf

    def hello(self, num_trainers: int, extra: int = 0) -> None:
        """Open the session with every server.

        Args:
            num_trainers: of the job.
            extra: 0 or `session.TAKES_OVER`.

        Raises:
            PserverLost: one did not answer within `timeout_s`.
            PserverError: one refused us.
        """
        hello = Message(Verb.HELLO, value=num_trainers, extra=extra)
        for index, reply in self.run(dict.fromkeys(range(len(self._stamps)), hello)).items():
            self._stamps[index] = reply.stamp

    def run(self, requests: Mapping[int, Message]) -> dict[int, Message]:
        """Send each server its request and wait for all replies.

        Raises:
            PserverLost: a server is gone; `endpoint` says which.
            WaitTimeout: it took longer than `wait_s`; the exchange is cut off.
            PserverError: a server refused, or an earlier exchange was cut off in the middle.
        """
        return self.carry({index: Transfer(message) for index, message in requests.items()})

    def carry(self, transfers: Mapping[int, Transfer]) -> dict[int, Message]:
        """Do what `run` does with requests that may be too large for a message.

        Raises:
            PserverLost, WaitTimeout, PserverError: see `run`.
            ConfigError: part of a transfer cannot be sent; nothing was changed, and the next exchange may come.
        """
        if self._broken:
            raise PserverError(f"this client cannot go on after an error: {self._broken}")
        self._request += 1
        self._broken = "an exchange with the pservers was interrupted"
        try:
            for index, transfer in transfers.items():
                self._network.expect(index, Lane(transfer, self._own(index, transfer.head)))
                self._send(index, transfer.begin())
            replies = self._collect(dict(transfers))
        except ConfigError:
            # Of what cannot be sent no server has the whole: the next push to it takes back what there is.
            self._broken = ""
            raise
        finally:
            for index in transfers:
                self._network.expect(index, None)
        self._broken = ""
        return replies

    def attach(self, index: int, size: int) -> SharedSlabs | None:
        """Share memory with a server of this node; see `Links.attach`."""
        return self._network.attach(index, self._own(index, Message(Verb.ATTACH)), size)

    def leave(self, timeout_s: float) -> None:
        """Tell every server that this trainer goes, whatever happened before; waits at most `timeout_s`.

        Raises:
            PserverError: not every server could be told.
        """
        self._broken, self._timeout_s, self.wait_s = "", timeout_s, math.inf
        self.run(dict.fromkeys(range(len(self._stamps)), Message(Verb.LEAVE)))

    def _send(self, index: int, messages: Iterable[Message]) -> None:
        for message in messages:
            self._network.send(index, self._own(index, message))

    def _collect(self, pending: dict[int, Transfer]) -> dict[int, Message]:
        replies: dict[int, Message] = {}
        now = time.monotonic()
        heard, asked = dict.fromkeys(pending, now), dict.fromkeys(pending, now)
        told_at = now
        ends_at, told = now + self.wait_s, ""
        ask_after_s = min(_ASK_AFTER_S, self.wait_s / 2, self._timeout_s / 3)
        while pending:
            if now >= ends_at:
                raise WaitTimeout(
                    f"gave up after {self.wait_s:g} s: {told or 'the pservers have not said what they wait for'}"
                )
            incoming = self._network.receive(min(min(ask_after_s, self._timeout_s) / 4, ends_at - now))
            now = time.monotonic()
            if incoming is None:
                for index, waiting in pending.items():
                    if waiting.has_moved:
                        heard[index], waiting.has_moved = now, False
                    self._check_silence(index, now - heard[index])
                    if now - asked[index] > ask_after_s and self._stamps[index]:
                        asked[index] = now
                        self._send(index, [Message(Verb.STATUS)])
                continue
            index, message = incoming
            transfer = pending.get(index)
            if transfer is None:
                continue
            if (
                message is not None
                and message.verb is Verb.REPEAT
                and message.request not in (0, self._request)
            ):
                continue
            if message is None or message.verb is Verb.REPEAT:
                transfer.repeats += 1
                if transfer.repeats > _MAX_REPEATS:
                    endpoint = self._network.endpoints[index]
                    raise WireError(
                        f"pserver {endpoint}: {_MAX_REPEATS} messages in a row were lost", endpoint
                    )
                self._send(index, transfer.again() if message is None else transfer.repeat(message.value))
            elif (message.session, message.request) == (self._session, self._request):
                heard[index] = now
                if message.verb is not Verb.WAITING:
                    if message.verb is not Verb.VALUES:
                        self._accept(index, message)
                    self._send(index, transfer.take(message))
                    if transfer.is_over:
                        replies[index] = self._reply(transfer)
                        del pending[index]
                    continue
                told = f"pserver {self._network.endpoints[index]}: {message.section('').as_text()}"
                if now - told_at > _TELL_EVERY_S:
                    told_at = now
                    _log.warning("%s", told)
        return replies

    def _own(self, index: int, message: Message) -> Message:
        """Return a message with the numbers of this session and request."""
        return message.numbered(self._trainer, self._session, self._request, self._stamps[index])

    def _accept(self, index: int, reply: Message) -> None:
        if reply.verb not in _REFUSALS:
            return
        endpoint = self._network.endpoints[index]
        if reply.value == STRANGE and len(self._stamps) == 1:
            self._broken = ""
            raise ConfigError(reply.section("").as_text())
        self._broken = f"pserver {endpoint}: {reply.section('').as_text()}"
        raise _REFUSALS[reply.verb](self._broken, endpoint)

    @staticmethod
    def _reply(transfer: Transfer) -> Message:
        assert transfer.reply is not None  # it is over
        return transfer.reply

    def _check_silence(self, index: int, silent_s: float) -> None:
        if silent_s > self._timeout_s:
            endpoint = self._network.endpoints[index]
            hint = self._network.hint(index)
            raise PserverLost(f"pserver {endpoint} did not answer for {silent_s:.0f} s; {hint}", endpoint)
