# SPDX-License-Identifier: Apache-2.0
"""IP addresses as texts: their usual form, and what kind they are; connections that notice a silent peer.

Names are never looked up. `ipaddress` knows addresses too, and takes longer to import than everything that is asked of
it here.
"""

from __future__ import annotations

import socket


def family_of(address: str) -> int:
    """AF_INET or AF_INET6."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def usual(address: object) -> str:
    """An address in its usual form.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(address, str) or "\0" in address:
        raise ValueError("%.80r is not an address" % (address,))
    family = family_of(address)
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, address))
    except (OSError, UnicodeError) as error:
        raise ValueError("%.80r is not an address" % (address,)) from error


def is_loopback(address: str) -> bool:
    """Whether it never leaves this machine."""
    return address == "::1" or address.startswith("127.")


def is_link_local(address: str) -> bool:
    """Whether an address is valid on one link only."""
    if ":" not in address:
        return address.startswith("169.254.")
    raw = socket.inet_pton(socket.AF_INET6, address)
    return raw[0] == 0xFE and raw[1] & 0xC0 == 0x80


def keep_alive(sock: socket.socket, idle_s: int, pause_s: int, count: int, unsent_ms: int = 0) -> None:
    """Send small messages at once, and have the kernel end a connection whose peer is silent.

    Args:
        sock: TCP.
        idle_s, pause_s, count: after how long without data the peer is asked, again and again, and how often.
        unsent_ms: how long what was sent may find no peer; 0: as long as the system says.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    limits = {"KEEPIDLE": idle_s, "KEEPINTVL": pause_s, "KEEPCNT": count, "USER_TIMEOUT": unsent_ms}
    for name, value in limits.items():
        option = getattr(socket, "TCP_" + name, None)  # elsewhere than on Linux some are missing
        if option is not None and value:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
