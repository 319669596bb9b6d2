# SPDX-License-Identifier: Apache-2.0
"""The addresses at which nodes can reach this machine, in the order to try them.

Node names may not resolve here, or resolve to loopback (127.0.1.1 on Debian), so addresses on the routes to nodes come
first, then those of all other interfaces. No packet is sent to any node.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import re
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

MOST = 16  # addresses given to a node
LOOKED_UP, LOOK_UP_S = 16, 3.0
_SIOCGIFADDR = 0x8915
_FAR = ("192.0.2.1", "2001:db8::1")  # documentation address, reached by the default route
_INSIDE = re.compile(r"docker|br-|virbr|veth|cni|flannel|cali|lxc|lxd|podman|vmnet|vboxnet")


def own_addresses(hosts: Sequence[str], given: str = "") -> list[str]:
    """Return the addresses at which nodes may reach this machine; at least one.

    Args:
        hosts: names or addresses of the nodes, as far as they are known.
        given: ENGINE_ADDRESS, the only address if set.

    Returns:
        Addresses on the routes to the nodes, then on the default route, then of all other interfaces, with networks
        inside this machine last. Loopback only if there is no other address: a node on this machine reaches it by
        any of them.
    """
    if given:
        return [given]
    found = dict.fromkeys([*routed_addresses(hosts), *routed_addresses(_FAR)])
    others = sorted(_interfaces(), key=lambda one: _INSIDE.match(one[0]) is not None)
    found |= dict.fromkeys(address for _, address in others)
    return [address for address in found if _may_be_called(address)][:MOST] or ["127.0.0.1"]


def routed_addresses(hosts: Sequence[str]) -> list[str]:
    """Return the addresses of this machine on the routes to hosts that resolve here.

    Of many hosts only some are resolved: they share few networks, and thousands of simultaneous queries overload a
    name server.
    """
    found: dict[str, None] = {}
    enough = time.monotonic() + LOOK_UP_S
    for host in sampled(hosts):
        if time.monotonic() >= enough:
            break
        with contextlib.suppress(OSError):
            for family, _, _, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
                with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                    probe.connect(address)
                    found[probe.getsockname()[0].partition("%")[0]] = None
    return list(found)


def sampled(hosts: Sequence[str]) -> Sequence[str]:
    """Return an evenly spread sample of hosts."""
    return hosts[:: max(1, len(hosts) // LOOKED_UP)]


def _interfaces() -> Iterator[tuple[str, str]]:
    """Return name and address of each interface: its first IPv4 address, and its IPv6 addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                reply = fcntl.ioctl(asker.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                yield name, socket.inet_ntoa(reply[20:24])
    with contextlib.suppress(OSError):  # IPv6 is off
        for line in Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            digits, *_, name = line.split()
            yield name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))


def _may_be_called(address: str) -> bool:
    read = ipaddress.ip_address(address)
    return not (read.is_loopback or read.is_link_local or read.is_unspecified)
