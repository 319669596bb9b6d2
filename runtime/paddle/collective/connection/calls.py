# SPDX-License-Identifier: Apache-2.0
"""Connects pairs of ranks: one listens on its endpoint; the other retries until its connection is accepted.

Unauthenticated peers cannot delay a rank, and are counted rather than logged one by one. All handshakes run
concurrently. Their number is bounded: at the limit, the oldest connection of the address with the most connections is
closed, so that a flood evicts its own connections.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Generic, Self

from paddle.collective.connection.handshake import HANDSHAKE_S, Side, handshake
from paddle.collective.connection.stream import Greet, Note, Steps, Stream, finish
from paddle.collective.errors import CollectiveError, PeerLate
from paddle.collective.membership import Membership
from paddle.endpoints import address_of
from paddle.errors import ConfigError, PortBusy, WireError
from paddle.report_times import ReportTimes
from paddle_node.contract.classes import dataclass

_JITTER = Random()  # noqa: S311 - not the global generator, whose sequence belongs to the program
_log = logging.getLogger(__name__)

_MOST_STRANGERS = 128
_MOST_WARNED = 16  # addresses; all others are counted
_BATCH = 32
_MAX_HELLO = 64 << 10
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_BACKLOG = 128
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 0.5
_CALL_S = 10.0


def listen(me: Membership) -> socket.socket:
    """Return a socket that listens at this rank's own endpoint.

    Raises:
        PortBusy: another process has the port.
        ConfigError: the address does not belong to this machine.
    """
    endpoint = me.endpoints[me.rank]
    host, port = address_of(endpoint)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortBusy(
                f"rank {me.rank} cannot listen at {endpoint}: another process already listens there", endpoint
            ) from None
        raise ConfigError(
            f"rank {me.rank} cannot listen at {endpoint} ({error.strerror or error}): the "
            "endpoint must be an address of the machine the rank runs on"
        ) from None
    listener.setblocking(False)
    return listener


def call(me: Membership, rank: int, deadline: float, greet: Greet | None = None) -> Stream:
    """Connect to a rank, retrying until it listens, and return the stream; log the reason if this takes long.

    Args:
        greet: the handshake to use; None uses that of the rendezvous.

    Raises:
        PeerLate: the rank did not answer before the deadline.
        CollectiveError: a program other than a rank of this job answers.
    """
    endpoint = me.endpoints[rank]
    pause_s, why = _FIRST_PAUSE_S, ""
    times = ReportTimes(deadline - time.monotonic())
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            sock = socket.create_connection(address_of(endpoint), timeout=min(left_s, _CALL_S))
            steps = greet(sock) if greet else handshake(sock, Side.CALLING, me.secret, me.sealed)
            return finish(steps, sock.fileno(), time.monotonic() + HANDSHAKE_S)
        except WireError as error:
            raise CollectiveError(f"rank {rank} at {endpoint}: {error}", rank) from None
        except OSError as error:  # it does not listen yet
            why = (error.strerror or str(error)).lower()
            if times.pass_moment():
                _log.warning(
                    "rank %d is waiting for rank %d at %s: %s (%s)", me.rank, rank, endpoint, why, times
                )
        time.sleep(min(pause_s * _JITTER.uniform(0.5, 1.0), max(left_s, 0)))
        pause_s = min(2 * pause_s, _LAST_PAUSE_S)
    raise PeerLate(f"rank {rank} at {endpoint} did not answer within {me.timeout_s:g} s: {why}", rank)


@dataclass(frozen=True, slots=True)
class _Guest(Generic[Note]):
    """An incoming connection from `address`; its handshake must finish before `deadline` (monotonic clock)."""

    address: str
    steps: Steps[tuple[Stream, Note]]
    deadline: float


class Callers(Generic[Note]):
    """Accepts and authenticates the connections of one listener until a deadline. Not thread-safe."""

    def __init__(
        self,
        me: Membership,
        listener: socket.socket,
        deadline: float,
        says: type[Note],
        greet: Greet | None = None,
    ) -> None:
        """Accept connections of a non-blocking listener, which stays open afterwards.

        Args:
            deadline: a time of the monotonic clock.
            says: the type of the record that every caller sends first.
            greet: the handshake to use; None uses that of the rendezvous.
        """
        self._greet = greet or partial(handshake, side=Side.CALLED, secret=me.secret, sealed=me.sealed)
        self._me, self._listener, self._deadline, self._says = me, listener, deadline, says
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._guests: dict[int, _Guest[Note]] = {}  # descriptor -> connection, the oldest first
        self._introduced: deque[tuple[Stream, Note]] = deque()
        self._report_times = ReportTimes(deadline - time.monotonic())
        self._warned: set[str] = set()
        self._refused = self._untold = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Close all connections that `next` has not returned."""
        for guest in self._guests.values():
            guest.steps.close()
        for stream, _ in self._introduced:
            stream.close()
        if self._untold:
            _log.warning("%s", self._count())

    def next(self, absent: Callable[[], str]) -> tuple[Stream, Note] | None:
        """Return the next authenticated connection and its first record, or None when the deadline has passed.

        Args:
            absent: returns the ranks that have not called yet; they are logged at intervals.

        Raises:
            CollectiveError: this process has no file descriptors left.
        """
        while not self._introduced:
            now = time.monotonic()
            if now >= self._deadline:
                return None
            wait_s = min(self._deadline - now, self._report_times.due_in_s, self._dismiss_late(now))
            for descriptor, _ in self._poll.poll(wait_s * 1000):
                if descriptor == self._listener.fileno():
                    self._admit()
                elif descriptor in self._guests:
                    self._go_on(descriptor)
            if self._report_times.pass_moment():
                self._report_waiting(absent())
        return self._introduced.popleft()

    def _dismiss_late(self, now: float) -> float:
        """Close connections whose handshake took too long; return the seconds until the next one would."""
        while self._guests:
            descriptor, guest = next(iter(self._guests.items()))
            if guest.deadline > now:
                return guest.deadline - now
            self._dismiss(descriptor, f"no handshake within {HANDSHAKE_S:g} s")
        return HANDSHAKE_S

    def _admit(self) -> None:
        for _ in range(_BATCH):
            try:
                sock, where = self._listener.accept()
            except OSError as error:
                if error.errno in _SHORT and not self._guests:
                    raise CollectiveError(
                        f"rank {self._me.rank} cannot accept connections: {error.strerror}", self._me.rank
                    ) from None
                if error.errno in _SHORT:
                    self._make_room()
                return
            if len(self._guests) >= _MOST_STRANGERS + self._me.size:
                self._make_room()
            descriptor = sock.fileno()
            self._guests[descriptor] = _Guest(
                str(where[0]), _introduction(sock, self._greet, self._says), time.monotonic() + HANDSHAKE_S
            )
            self._go_on(descriptor)

    def _make_room(self) -> None:
        counts = Counter(guest.address for guest in self._guests.values())
        # `most_common` would import a module, which takes a free descriptor
        crowd = max(counts, key=counts.__getitem__)
        oldest = next(at for at, guest in self._guests.items() if guest.address == crowd)
        self._dismiss(oldest, "too many connections without a handshake")

    def _go_on(self, descriptor: int) -> None:
        guest = self._guests[descriptor]
        try:
            self._poll.register(descriptor, next(guest.steps))
        except StopIteration as end:
            self._forget(descriptor)
            self._introduced.append(end.value)
        except (WireError, OSError) as error:
            self._forget(descriptor)
            self._refuse(guest.address, str(error))

    def _dismiss(self, descriptor: int, why: str) -> None:
        guest = self._guests[descriptor]
        self._forget(descriptor)
        guest.steps.close()
        self._refuse(guest.address, why)

    def _forget(self, descriptor: int) -> None:
        del self._guests[descriptor]
        try:
            self._poll.unregister(descriptor)
        except KeyError:
            return  # it ended in its first step, before it was registered

    def _refuse(self, address: str, why: str) -> None:
        self._refused += 1
        if address not in self._warned and len(self._warned) < _MOST_WARNED:
            self._warned.add(address)
            _log.warning("refused a connection from %s: %s", address, why)
        else:
            self._untold += 1

    def _report_waiting(self, absent: str) -> None:
        me = self._me
        strangers = f"; {self._count()}" if self._untold else ""
        _log.warning(
            "rank %d at %s is waiting for %s (%s)%s",
            me.rank,
            me.endpoints[me.rank],
            absent,
            self._report_times,
            strangers,
        )
        self._untold = 0

    def _count(self) -> str:
        return f"{self._refused} connections from outside this job have been refused so far"


def _introduction(sock: socket.socket, greet: Greet, says: type[Note]) -> Steps[tuple[Stream, Note]]:
    stream = yield from greet(sock)
    try:
        return stream, (yield from stream.taking_note(says, _MAX_HELLO))
    except BaseException:
        stream.close()
        raise
