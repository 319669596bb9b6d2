# SPDX-License-Identifier: Apache-2.0
"""IP addresses as texts: their usual form, and what kind they are. Names are never looked up.

`ipaddress` knows this too, and takes longer to import than everything that is asked of it here.
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
        raise ValueError("%.80r is no address" % (address,))
    family = family_of(address)
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, address))
    except (OSError, UnicodeError) as error:
        raise ValueError("%.80r is no address" % (address,)) from error


def is_loopback(address: str) -> bool:
    """Whether it never leaves this machine."""
    return address == "::1" or address.startswith("127.")


def is_link_local(address: str) -> bool:
    """Whether it is no address beyond one cable."""
    if ":" not in address:
        return address.startswith("169.254.")
    raw = socket.inet_pton(socket.AF_INET6, address)
    return raw[0] == 0xFE and raw[1] & 0xC0 == 0x80
