# SPDX-License-Identifier: Apache-2.0
"""Looks at who listens where a parameter server should: the system's own answer, or what a stranger says.

ZeroMQ keeps trying and says nothing of what it meets. A probe connects once by itself and exchanges ZMTP's greeting
(RFC 23), which tells ZeroMQ from all else, and an encrypted wire from a plain one. It sends nothing more.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from enum import Enum
from typing import NamedTuple

from paddle.endpoints import address_of

_SIGNATURE = b"\xff" + bytes(7) + b"\x01\x7f"
_VERSION = b"\x03\x00"
_GREETING = 64  # bytes: signature 10, version 2, mechanism 20, as-server 1, filler 31
_MECHANISM = slice(12, 32)
_SHOWN = 60
_CURVE, _PLAIN = "CURVE", "NULL"
_WIRES = {_CURVE: "curve", _PLAIN: "plain"}
_ADVICE = "give both sides the same PADDLE_JOB_KEY and --wire (PADDLE_WIRE)"
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL)


class Sight(Enum):
    """What a probe may find."""

    NOBODY = "nobody"
    CLOSES = "closes"
    MUTE = "mute"
    STRANGER = "stranger"
    OTHER_WIRE = "other wire"
    SAME_WIRE = "same wire"


class Finding(NamedTuple):
    """What one probe found, and words for it."""

    sight: Sight
    text: str


def look(endpoint: str, *, is_encrypted: bool, timeout_s: float) -> Finding:
    """Connect to an "ip:port" once, and say who is there.

    Args:
        endpoint: of a server.
        is_encrypted: whether our own wire is.
        timeout_s: for connecting, and for the greeting; looking a name up takes as long as the system takes.
    """
    host, port = address_of(endpoint)
    try:
        sock = socket.create_connection((host, port), timeout_s)
    except socket.gaierror as error:
        return Finding(
            Sight.NOBODY,
            f"the name {host!r} cannot be resolved ({error.strerror}); is it right, and known to this machine?",
        )
    except OSError as error:
        return Finding(Sight.NOBODY, _no_connection(error, timeout_s))
    with sock:
        return _greeted(sock, is_encrypted, timeout_s)


def _no_connection(error: OSError, timeout_s: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        return (
            "connection refused: nothing is listening on that port; is the server running? is the port right?"
        )
    if isinstance(error, TimeoutError):
        return (
            f"no answer to a connection within {timeout_s:.1f} s: the address is wrong, the machine is off, or a "
            "firewall drops what comes"
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    way = "there is no way to it from here" if error.errno in _UNREACHABLE else "it cannot be connected to"
    return f"{reason.lower()}: {way}; is the address right?"


def _greeted(sock: socket.socket, is_encrypted: bool, timeout_s: float) -> Finding:
    ours = _CURVE if is_encrypted else _PLAIN
    heard = _exchange(sock, timeout_s)
    if heard is None:
        return Finding(
            Sight.CLOSES,
            "it accepts connections and closes them at once, as a proxy does whose server does not run; does it run?",
        )
    if not heard:
        return Finding(
            Sight.MUTE,
            "it accepts connections and says nothing: a process that is stopped or too busy, or no pserver",
        )
    if heard[0] != _SIGNATURE[0] or (len(heard) > 9 and not heard[9] & 1):
        return Finding(
            Sight.STRANGER, f"something that is no pserver listens there; it says {heard[:_SHOWN]!r}"
        )
    if len(heard) < _GREETING:
        return Finding(Sight.MUTE, "it begins to speak ZeroMQ and does not go on; is it a pserver?")
    theirs = heard[_MECHANISM].rstrip(b"\0").decode("ascii", "replace")
    if theirs == ours:
        return Finding(
            Sight.SAME_WIRE, "ZeroMQ listens there, and no connection comes about; is it a pserver?"
        )
    if theirs not in _WIRES:
        return Finding(
            Sight.STRANGER, f"something that is no pserver listens there: ZeroMQ with {theirs[:_SHOWN]!r}"
        )
    return Finding(Sight.OTHER_WIRE, f"its wire is {_WIRES[theirs]}, and ours is {_WIRES[ours]}; {_ADVICE}")


def _exchange(sock: socket.socket, timeout_s: float) -> bytes | None:
    """Return what comes of a greeting, b"" if nothing does, None if the connection is closed instead.

    We say the signature and the version: then ZeroMQ says all of its own, and waits for our mechanism. It speaks at
    once, so whoever says nothing gets an empty line, to which protocols of text have an answer.
    """
    heard = _heard(sock, _SIGNATURE + _VERSION, timeout_s / 2)
    return _heard(sock, b"\r\n\r\n", timeout_s / 2) if heard == b"" else heard


def _heard(sock: socket.socket, said: bytes, timeout_s: float) -> bytes | None:
    heard = b""
    deadline = time.monotonic() + timeout_s
    try:
        sock.sendall(said)
        while len(heard) < _GREETING and (left_s := deadline - time.monotonic()) > 0:
            sock.settimeout(left_s)
            more = sock.recv(_GREETING - len(heard))
            if not more:
                return heard or None
            heard += more
    except TimeoutError:
        return heard
    except OSError:
        return heard or None
    return heard
