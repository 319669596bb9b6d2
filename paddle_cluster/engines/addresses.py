# SPDX-License-Identifier: Apache-2.0
"""The addresses at which nodes can reach this machine, in the order to try them.

Node names may not resolve here, or resolve to loopback (127.0.1.1 on Debian), so addresses on the routes to nodes come
first, then those of all other interfaces. No packet is sent to any node.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import time
from collections.abc import Sequence

from paddle_node.linux.interfaces import interfaces

MOST = 16  # addresses given to a node
LOOKED_UP, LOOK_UP_S = 16, 3.0
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
    others = sorted(interfaces().items(), key=lambda one: _INSIDE.match(one[0]) is not None)
    found |= dict.fromkeys(address for _, addresses in others for address in addresses)
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


def _may_be_called(address: str) -> bool:
    read = ipaddress.ip_address(address)
    return not (read.is_loopback or read.is_link_local or read.is_unspecified)
