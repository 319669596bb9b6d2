# SPDX-License-Identifier: Apache-2.0
"""The ports of a node's processes: adjacent ones, looked at before anything is started."""

from __future__ import annotations

import errno
import socket

from paddle.errors import ConfigError

_HIGHEST = 65535
_TRIES = 256


def choose(address: str, first: int, count: int, *, flag: str, movable: bool) -> int:
    """The first of `count` adjacent free ports.

    Args:
        first: where they are to begin.
        flag: what the user would give to have others.
        movable: the next free ones do as well; nobody else was told of these.

    Raises:
        ConfigError: a port is taken, or there are not so many.
    """
    if not 1 <= first <= _HIGHEST - count + 1:
        raise ConfigError(f"{flag}: expected {count} ports between 1 and {_HIGHEST}, got {first}")
    last = min(first + _TRIES, _HIGHEST - count + 1) if movable else first
    start = first
    while start <= last:
        taken = next((port for port in range(start, start + count) if is_taken(address, port)), None)
        if taken is None:
            return start
        start = taken + 1
    raise ConfigError(
        f"port {taken} of {address} is in use"
        + (f", and so is one of every {count} up to {last + count - 1}" if movable else "")
        + f"; give other ones with {flag}"
    )


def is_taken(address: str, port: int) -> bool:
    """Whether somebody listens there; no for an address that is not this machine's, of which nothing is known."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno in (errno.EADDRINUSE, errno.EACCES)
    return False
