# SPDX-License-Identifier: Apache-2.0
"""Selects the address of each node for the job's traffic, in a network that all nodes share with working routes.

A network is common if every node has its own address in it. A network that is private to each machine, with the same
address everywhere (docker0, virbr0), is not common. The functions are pure. Without a common network, each node uses
the address of its interface or of the login.
"""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence

from paddle_node.contract.classes import dataclass
from paddle_node.contract.probed import Route
from paddle_node.contract.to_launcher import Probed

TRIED = 3  # networks whose routes are tried
_LOOKED_AT = 16  # maximum number of networks considered

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Common:
    """A network in which all nodes have an address, and these addresses by node ID."""

    network: Network
    addresses: Mapping[int, str]


@dataclass(frozen=True)
class Choice:
    """The addresses chosen for the job's traffic, by node ID, and the reason for the choice in one line."""

    addresses: Mapping[int, str]
    why: str


def common_networks(answers: Mapping[int, Probed]) -> list[Common]:
    """Return the networks that all nodes share: networks of logins first, then IPv4, then in order of appearance."""
    counted: Counter[Network] = Counter()
    for answer in answers.values():
        counted.update({interface(one.address, one.prefix).network for one in answer.networks})
    found = []
    for network, _ in counted.most_common(_LOOKED_AT):
        addresses = {node_id: _inside(answer, network) for node_id, answer in answers.items()}
        if "" not in addresses.values() and len(set(addresses.values())) == len(addresses):
            found.append(Common(network, addresses))
    found.sort(key=lambda one: (-_logins(one, answers), one.network.version))
    return found


def places(answers: Mapping[int, Probed]) -> dict[int, tuple[str, ...]]:
    """Return the addresses by node ID that peers should probe: one in each of the likeliest networks."""
    if len(answers) < 2:
        return dict.fromkeys(answers, ())
    common = common_networks(answers)[:TRIED]
    if not common:
        return {node_id: (answer.address,) for node_id, answer in answers.items()}
    return {node_id: tuple(dict.fromkeys(one.addresses[node_id] for one in common)) for node_id in answers}


def choose(answers: Mapping[int, Probed], routes: Mapping[int, Sequence[Route]], nic: str = "") -> Choice:
    """Choose the address of every node for the job's traffic.

    Args:
        answers: the answers by node ID, of all nodes that answered.
        routes: the results of each node's probes of other nodes, by node ID.
        nic: the value of PADDLE_NIC; the nodes have already applied it.
    """
    by_itself = {node_id: answer.address for node_id, answer in answers.items()}
    if len(answers) < 2:
        return Choice(by_itself, f"PADDLE_NIC {nic}" if nic else "one node: its own address")
    common = common_networks(answers)[:TRIED]
    if not common:
        own = f"the first address of {nic}" if nic else "the address of its login"
        if not any(answer.networks for answer in answers.values()):
            own = "its own"  # embedded nodes
        return Choice(by_itself, f"no network includes all nodes: each uses {own}")
    judged = sorted(common, key=lambda one: _rank(one, answers, routes))
    best = judged[0]
    tried, failed, latency_s = _tries(best, routes)
    reasons = [f"every node has an address in {best.network}"]
    if nic:
        reasons.insert(0, f"PADDLE_NIC {nic}")
    reasons.append(f"{tried - failed} of {tried} routes work, typically in {latency_s * 1000:.1f} ms")
    if _logins(best, answers) == len(answers):
        reasons.append("logins use this network")
    if len(judged) > 1:
        reasons.append("also possible: " + ", ".join(str(one.network) for one in judged[1:]))
    return Choice(best.addresses, "; ".join(reasons))


def _rank(
    one: Common, answers: Mapping[int, Probed], routes: Mapping[int, Sequence[Route]]
) -> tuple[int, int, int, float, str]:
    _, failed, latency_s = _tries(one, routes)
    return failed, one.network.version, -_logins(one, answers), latency_s, str(one.network)


def _tries(one: Common, routes: Mapping[int, Sequence[Route]]) -> tuple[int, int, float]:
    """Return how many routes were probed in a network, how many failed, and the median time of the others."""
    tried = [
        route
        for found in routes.values()
        for route in found
        if one.addresses.get(route.peer) == route.address
    ]
    took = sorted(route.seconds for route in tried if route.ok)
    median = (took[(len(took) - 1) // 2] + took[len(took) // 2]) / 2 if took else 0.0
    return len(tried), len(tried) - len(took), median


def _logins(one: Common, answers: Mapping[int, Probed]) -> int:
    return sum(answers[node_id].login_address == address for node_id, address in one.addresses.items())


@functools.lru_cache(maxsize=4096)  # of the nodes' answers, which are read several times
def interface(address: str, prefix: int) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    """Return an address with its network. Raises ValueError if the prefix is too long."""
    return ipaddress.ip_interface(f"{address}/{prefix}")


def _inside(answer: Probed, network: Network) -> str:
    inside = [one.address for one in answer.networks if interface(one.address, one.prefix) in network]
    if answer.login_address in inside:
        return answer.login_address
    return inside[0] if inside else ""
