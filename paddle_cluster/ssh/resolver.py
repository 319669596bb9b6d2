# SPDX-License-Identifier: Apache-2.0
"""Resolves host names and opens connections within a time limit."""

from __future__ import annotations

import errno
import itertools
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Mapping

TRIES = 4  # attempts per silent server, the first immediately


class NameTimeoutError(TimeoutError):
    """Raised when the resolver did not answer in time."""


class SilentError(TimeoutError):
    """Raised when the server accepted the connection but sent nothing in time."""


def open_tcp(
    host: str, port: int, timeout_s: float, greeting: bytes, family: str = "any", bind: str = ""
) -> socket.socket:
    """Return a connection to a server that has answered a greeting; blocks for about `timeout_s`.

    While no server answers, further connections are started in parallel, because packets can be lost.

    Args:
        family: the addresses to try, as in AddressFamily of the ssh config.
        bind: a local address or its name, or empty for any.

    Raises:
        NameTimeoutError: the resolver did not answer.
        SilentError: a connection was accepted, but no answer arrived.
        OSError: the reason why the last address failed.
    """
    deadline = time.monotonic() + timeout_s
    found = [one for one in addresses(host, timeout_s) if family in ("any", _family(one))]
    if not found:
        raise OSError(f"the host has no address of the AddressFamily {family} in your ssh config")
    own = {_family(one): one for one in addresses(bind, timeout_s)} if bind else {}
    first, more = iter(found), itertools.islice(itertools.cycle(found), TRIES - 1)
    with _Race(port, greeting, own) as race:
        while True:
            address = next(first, None) or (next(more, None) if race.is_on else None)
            until = min(deadline, time.monotonic() + timeout_s / TRIES) if address else deadline
            if address:
                race.begin(address)
            elif not race.is_on:
                raise race.error
            won = race.wait(until)
            if won is not None:
                return won
            if time.monotonic() >= deadline:
                raise race.late() if race.is_on else race.error


class _Race:
    """Competing connections; the first one that receives an answer is used.

    Args:
        own: the local address for each address family; empty: any.
    """

    def __init__(self, port: int, greeting: bytes, own: Mapping[str, str]) -> None:
        self.error: OSError = OSError("the host has no address")
        self._port = port
        self._greeting = greeting
        self._own = own
        self._waiting: dict[int, socket.socket] = {}
        self._poll = select.poll()
        self._greeted: set[socket.socket] = set()

    def __enter__(self) -> _Race:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._waiting.values():
            connection.close()

    @property
    def is_on(self) -> bool:
        """Return whether a connection is waiting."""
        return bool(self._waiting)

    def late(self) -> OSError:
        """Return the error for a timeout."""
        return SilentError() if self._greeted else TimeoutError("timed out")

    def begin(self, address: str) -> None:
        """Begin a non-blocking TCP connection to an address."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        # a frame must not wait for the acknowledgement of the previous one
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._own:
                connection.bind(_with_zone(self._own[_family(address)], 0))
        except (OSError, KeyError) as error:
            connection.close()
            why = error.strerror if isinstance(error, OSError) else f"no such address for {address}"
            self.error = OSError(f"cannot use BindAddress of your ssh config: {why}")
            return
        code = connection.connect_ex(_with_zone(address, self._port))
        if code not in (0, errno.EINPROGRESS):
            connection.close()
            self.error = OSError(code, os.strerror(code))
            return
        self._waiting[connection.fileno()] = connection
        self._poll.register(connection, select.POLLOUT)

    def wait(self, until: float) -> socket.socket | None:
        """Return the first connection with an answer; None if all have failed, or after `until` (monotonic clock)."""
        while self._waiting and (left_s := until - time.monotonic()) > 0:
            for fd, _ in self._poll.poll(left_s * 1000):
                connection = self._waiting[fd]
                try:
                    if self._step(connection):
                        del self._waiting[fd]
                        return connection
                except OSError as error:
                    self.error = error
                    self._poll.unregister(fd)
                    self._waiting.pop(fd).close()
        return None

    def _step(self, connection: socket.socket) -> bool:
        """Continue with a connection; return whether it has an answer."""
        if connection not in self._greeted:
            connection.send(self._greeting)  # raises the reason if there is no connection
            self._greeted.add(connection)
            self._poll.modify(connection, select.POLLIN)
            return False
        try:
            if connection.recv(1, socket.MSG_PEEK):
                return True
        except BlockingIOError:
            return False
        raise ConnectionResetError(errno.ECONNRESET, "closed before the server sent anything")


def _family(address: str) -> str:
    return "inet6" if ":" in address else "inet"


def _with_zone(address: str, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    name, _, zone = address.partition("%")
    if not zone:
        return address, port
    return name, port, 0, int(zone) if zone.isdigit() else socket.if_nametoindex(zone)


def addresses(host: str, timeout_s: float) -> list[str]:
    """Return a host's numeric addresses, in the order in which to try them.

    Raises:
        NameTimeoutError: the resolver did not answer.
        socket.gaierror: the name does not exist.
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return [host]
    # a separate thread, abandoned if the resolver hangs: it cannot be interrupted
    answers: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()
    threading.Thread(target=_ask, args=(host, answers), name=f"resolve {host}", daemon=True).start()
    began = time.monotonic()
    try:
        answer = answers.get(timeout=timeout_s)
    except queue.Empty:
        waited_s = time.monotonic() - began
        raise NameTimeoutError(f"no answer from the resolver within {waited_s:.0f} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _ask(host: str, answers: queue.SimpleQueue[list[str] | OSError | UnicodeError]) -> None:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        answers.put(error)
        return
    # with the zone of a link-local address
    names = [
        socket.getnameinfo(entry[4], socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0] for entry in found
    ]
    answers.put(list(dict.fromkeys(names)))
