# SPDX-License-Identifier: Apache-2.0
"""Which addresses of this node may carry the job's traffic; the launcher, which sees all nodes, takes one of them."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

from paddle_node.agent.link.inet import is_loopback, usual
from paddle_node.agent.node.network import Placed

LOOPBACK = "127.0.0.1"
MOST = 8
# Networks that containers and virtual machines have inside one machine; what a login came in on counts all the same.
_INSIDE = (
    "docker",
    "br-",
    "virbr",
    "veth",
    "cni",
    "flannel",
    "cali",
    "lxc",
    "lxd",
    "podman",
    "kube",
    "dummy",
)


class Candidates(NamedTuple):
    """Addresses, the likeliest first.

    Attributes:
        problem: why what was asked for cannot be had, or "".
    """

    addresses: List[str]
    problem: str


def candidates(
    given: Optional[str], nic: Optional[str], login: Optional[str], have: List[Placed]
) -> Candidates:
    """Choose among what the node has.

    Args:
        given: the address to take whatever the node says, or None.
        nic: names of interfaces with commas between, the first one that has an address counts; or None.
        login: the address that the login came to, or None.

    Raises:
        ValueError: `given` is no address; a name would be looked up, which can take long.
    """
    if given:
        return Candidates([usual(given)], "")
    problem = ""
    if nic:
        for name in nic.split(","):
            found = [one.address for one in have if one.nic == name]
            if found:
                return Candidates(sorted(found, key=_is_v6)[:MOST], "")
        problem = _no_such(nic, have)
    found = [one.address for one in have if not one.nic.startswith(_INSIDE) and not is_loopback(one.address)]
    ordered = sorted(found, key=_is_v6)
    if login:
        ordered = [login, *(address for address in ordered if address != login)]
    return Candidates(ordered[:MOST] or [LOOPBACK], problem)


def _no_such(nic: str, have: List[Placed]) -> str:
    by_name = {}  # type: dict[str, List[str]]
    for one in have:
        by_name.setdefault(one.nic, []).append(one.address)
    has = ", ".join("%s (%s)" % (name, " ".join(addresses)) for name, addresses in by_name.items())
    return "%s is not there, is down, or has no address; this node has %s (PADDLE_NIC in conf.py)" % (
        nic,
        has,
    )


def _is_v6(address: str) -> bool:
    return ":" in address
