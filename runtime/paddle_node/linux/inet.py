# SPDX-License-Identifier: Apache-2.0
"""IP addresses as text (canonical form, family, scope), and TCP options that detect a silent peer.

Names are never resolved. `ipaddress` is not used, because its import takes longer than all the work of this module.
"""

from __future__ import annotations

import contextlib
import socket
import time

UNREAD_BYTES = 4 << 20
UNREAD_S = 2.0


def family_of(address: str) -> int:
    """Return the address family, AF_INET or AF_INET6, of an IP address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def usual(address: object) -> str:
    """Return an IP address in its canonical form.

    Raises:
        ValueError: the value is not an IP address.
    """
    if not isinstance(address, str) or "\0" in address:
        raise ValueError("%.80r is not an address" % (address,))
    family = family_of(address)
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, address))
    except (OSError, UnicodeError) as error:
        raise ValueError("%.80r is not an address" % (address,)) from error


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    return address == "::1" or address.startswith("127.")


def is_link_local(address: str) -> bool:
    """Return whether an IP address is link-local, that is, valid on one link only."""
    if ":" not in address:
        return address.startswith("169.254.")
    raw = socket.inet_pton(socket.AF_INET6, address)
    return raw[0] == 0xFE and raw[1] & 0xC0 == 0x80


def keep_alive(sock: socket.socket, idle_s: int, pause_s: int, count: int, unsent_ms: int = 0) -> None:
    """Set TCP options: send small messages immediately, and close a connection whose peer is silent.

    Args:
        sock: a TCP socket.
        idle_s, pause_s, count: seconds without data before the first keepalive, seconds between them, and their number.
        unsent_ms: milliseconds for which sent data may stay unacknowledged; 0 means the system's default.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    limits = {"KEEPIDLE": idle_s, "KEEPINTVL": pause_s, "KEEPCNT": count, "USER_TIMEOUT": unsent_ms}
    for name, value in limits.items():
        option = getattr(socket, "TCP_" + name, None)  # some are missing on systems other than Linux
        if option is not None and value:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def discard_unread(sock: socket.socket) -> None:
    """Close the sending side of a TCP connection, and read the peer's remaining data, within limits.

    Call this before a server closes a connection: closing a socket that has unread data resets the connection, and
    the peer may lose the last response.
    """
    ends_at, left = time.monotonic() + UNREAD_S, UNREAD_BYTES
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while left > 0 and ends_at > time.monotonic():
            sock.settimeout(max(ends_at - time.monotonic(), 0.001))
            got = len(sock.recv(1 << 16))
            if not got:
                return
            left -= got
