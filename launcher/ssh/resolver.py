# SPDX-License-Identifier: Apache-2.0
"""Host names to addresses, within a time limit: the system's resolver knows none."""

from __future__ import annotations

import queue
import socket
import threading
import time


class NameTimeoutError(TimeoutError):
    """The resolver did not answer in time."""


def open_tcp(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connection to the first address of a host that takes one.

    Args:
        timeout_s: for the resolver, and again for each address.

    Raises:
        NameTimeoutError: the resolver did not answer.
        OSError: what the last address said.
    """
    refused: OSError | None = None
    for address in addresses(host, timeout_s):
        try:
            connection = socket.create_connection((address, port), timeout_s)
        except OSError as error:
            refused = error
            continue
        # a frame must not wait for the acknowledgement of the one before
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    raise refused or OSError(f"{host} has no address")


def addresses(host: str, timeout_s: float) -> list[str]:
    """Numeric addresses of a host, in the order in which to try them.

    Raises:
        NameTimeoutError: the resolver did not answer.
        socket.gaierror: there is no such name.
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return [host]
    # a thread of its own, left behind where the resolver hangs: nothing can cut it short
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
