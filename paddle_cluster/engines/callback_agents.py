# SPDX-License-Identifier: Apache-2.0
"""The interface for starting callback agents, through mpirun or a cluster's API, and the addresses they connect to.

Callback agents try these addresses of the launcher in order. Because node names may not resolve on this machine, or may
resolve to loopback (127.0.1.1 on Debian), addresses on the routes to nodes come first, then those of all other
interfaces. No packet is sent to any node.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from paddle_node.contract.classes import NamedTuple, regex
from paddle_node.contract.records import Secret
from paddle_node.linux.interfaces import interfaces

INVITATION, AGENT_CODE = "_PADDLE_PORTER", "_PADDLE_PORTER_CODE"  # environment variables of an agent


class CallbackAgent(NamedTuple):
    """The command line that starts a callback agent on each node.

    Attributes:
        env: variables that the command needs in addition to the node's; secret.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]


class Call(NamedTuple):
    """The first line that a callback agent sends on a connection; the rank is -1 if it has none."""

    word: Secret
    rank: int
    host: str


Invite = Callable[[Sequence[str], Sequence[str]], CallbackAgent]
"""Makes the callback agent from names on whose routes the nodes are, and from the variables with a node's rank, the
preferred one first."""


class CallbackAgentsEnded(Protocol):
    """The type of the function to call, from any thread, when callback agents have ended permanently."""

    def __call__(self, why: str, rank: int | None = None) -> None:
        """Report that one callback agent has ended, or that all have ended and none will connect."""


class CallbackAgents(Protocol):
    """The interface of a starter of callback agents, one per node. Used for one job.

    Attributes:
        name: name of the starter in messages.
        hosts: the nodes' own host names, in the order of their IDs.
        start_s: timeout in seconds from `start` until all callback agents have connected.
    """

    name: str
    hosts: tuple[str, ...]
    start_s: float

    def start(self, invite: Invite, ended: CallbackAgentsEnded) -> None:
        """Start the callback agents; block only briefly.

        Args:
            ended: function that is called when all callback agents have ended, and possibly earlier for individual
                ones.

        Raises:
            OSError: all ports for callback agents are in use.
        """

    def status_line(self) -> str:
        """Return a one-line report on the callback agents that have not connected, or ""."""

    def close(self) -> str:
        """End the callback agents and wait until all started processes have exited; this takes seconds.

        Returns:
            A description of what may remain, or "".
        """


MOST = 16  # maximum number of addresses given to a node
LOOKED_UP, LOOK_UP_S = 16, 3.0
_FAR = ("192.0.2.1", "2001:db8::1")  # a documentation address, which the default route covers
_INSIDE = regex(r"docker|br-|virbr|veth|cni|flannel|cali|lxc|lxd|podman|vmnet|vboxnet")


def own_addresses(hosts: Sequence[str], given: str = "") -> list[str]:
    """Return the addresses at which nodes may reach this machine; at least one.

    Args:
        hosts: names or addresses of the nodes, as far as known.
        given: ENGINE_ADDRESS; if set, the only address.

    Returns:
        Addresses on the routes to the nodes, then on the default route, then of all other interfaces, with networks
        inside this machine last. Loopback only if there is no other address: a node on this machine can use any of
            them.
    """
    if given:
        return [given]
    found = dict.fromkeys([*routed_addresses(hosts), *routed_addresses(_FAR)])
    others = sorted(interfaces().items(), key=lambda one: _INSIDE.match(one[0]) is not None)
    found |= dict.fromkeys(address for _, addresses in others for address in addresses)
    return [address for address in found if _may_be_called(address)][:MOST] or ["127.0.0.1"]


def routed_addresses(hosts: Sequence[str]) -> list[str]:
    """Return this machine's addresses on the routes to hosts whose names resolve.

    Only a sample of many hosts is resolved, because they share few networks and thousands of simultaneous queries would
    overload a name server.
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
    """Return an evenly spread sample of hosts, of bounded size."""
    return hosts[:: max(1, len(hosts) // LOOKED_UP)]


def _may_be_called(address: str) -> bool:
    read = ipaddress.ip_address(address)
    return not (read.is_loopback or read.is_link_local or read.is_unspecified)
