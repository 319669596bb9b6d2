# SPDX-License-Identifier: Apache-2.0
"""Plans the relaying of files between nodes, so that the launcher sends only one copy.

Nodes form a chain, or a tree with few branches if there are many nodes and few bytes. A node relays data while
receiving it. Every node knows several upstream nodes, so that a failed node can be bypassed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from paddle_node.contract.classes import dataclass

LEAST_TAKERS = 2  # fewer nodes are served directly
# Bytes that would leave the launcher again: what a gigabit link transmits in a third of a second. Below that, setting
# up relays (TLS, a connection to each source) costs more than it saves.
LEAST_BYTES = 40 << 20
SOURCES = 3  # the parent and nodes above it

# The network assumed in choosing the shape; others work too, at another speed.
LINK_BYTES_S = 125e6
CHUNK_BYTES = 256 << 10
HOP_S = 0.002
MOST_BRANCHES = 4


@dataclass(frozen=True)
class Member:
    """A node that takes part in relaying, once it has reported its missing files.

    Attributes:
        lacking: number of missing bytes, by digest.
        offered: digests of all files that the node will eventually have.
    """

    node_id: int
    lacking: Mapping[str, int]
    offered: frozenset[str]


@dataclass(frozen=True)
class RelayRoute:
    """The sources of one node's missing files: the launcher, and other nodes.

    Attributes:
        direct: digests that the launcher sends.
        sources: nodes that provide the other files, best first; if empty, all are sent directly.
    """

    node_id: int
    direct: frozenset[str]
    sources: tuple[int, ...]


Reaches = Callable[[int, int], bool]


def routes(members: Sequence[Member], reaches: Reaches) -> list[RelayRoute]:
    """Plan the routes by which nodes receive their missing files.

    Args:
        reaches: whether the first node can connect to the second.

    Returns:
        One route per node that lacks files, in the order of the chain.
    """
    shared = frozenset.intersection(*(member.offered for member in members)) if members else frozenset()
    sizes = {member.node_id: _bytes(member, shared) for member in members}
    order = sorted(members, key=lambda member: (sizes[member.node_id], member.node_id))
    full = sum(size == 0 for size in sizes.values())
    roots = max(1, full)
    takers = [member for member in order[roots:] if member.lacking]
    relayed = sum(sizes[member.node_id] for member in takers)
    if len(takers) < LEAST_TAKERS or relayed < LEAST_BYTES:
        return [_direct(member) for member in order if member.lacking]
    most = max(sizes.values())
    branches = shape(most, len(takers) / roots)
    found = []
    for place, member in enumerate(order):
        if not member.lacking:
            continue
        sources = () if place < roots else _above(place, roots, branches)
        reachable = tuple(
            order[above].node_id for above in sources if reaches(member.node_id, order[above].node_id)
        )
        direct = frozenset(member.lacking) - shared if reachable else frozenset(member.lacking)
        found.append(RelayRoute(member.node_id, direct, reachable))
    return found


def late(member: Member, order: Sequence[Member], reaches: Reaches) -> RelayRoute:
    """Plan the route of a late node, which joins the chain after the last planned node.

    Args:
        order: the nodes that already have or receive the files, in the order of `routes`.
    """
    shared = member.offered.intersection(*(other.offered for other in order[-SOURCES:]))
    sources = tuple(
        other.node_id
        for other in reversed(order[-SOURCES:])
        if other.node_id != member.node_id and reaches(member.node_id, other.node_id)
    )
    if not sources or _bytes(member, shared) == 0:
        return _direct(member)
    return RelayRoute(member.node_id, frozenset(member.lacking) - shared, sources)


def shape(size: int, nodes: float) -> int:
    """Return the fastest number of nodes for each node to send to; 1 forms a chain.

    Args:
        size: number of bytes for each node.
        nodes: number of receiving nodes.
    """
    return min(range(1, MOST_BRANCHES + 1), key=lambda branches: duration_s(size, nodes, branches))


def duration_s(size: int, nodes: float, branches: int, link_bytes_s: float = LINK_BYTES_S) -> float:
    """Estimate the time in seconds until the last node has received everything.

    A node sends the files once to each of its receivers, over one link; the first chunk takes one step per level.
    """
    levels = nodes if branches == 1 else math.log(nodes * (branches - 1) + 1, branches)
    return branches * size / link_bytes_s + levels * (branches * CHUNK_BYTES / link_bytes_s + HOP_S)


def _above(place: int, roots: int, branches: int) -> tuple[int, ...]:
    """Return the places of the parent and nodes above it, the root last."""
    found: list[int] = []
    while place >= roots:
        place = (place - roots) // branches
        found.append(place)
    return tuple(dict.fromkeys((*found[:SOURCES], found[-1])))


def _bytes(member: Member, shared: frozenset[str]) -> int:
    return sum(size for digest, size in member.lacking.items() if digest in shared)


def _direct(member: Member) -> RelayRoute:
    return RelayRoute(member.node_id, frozenset(member.lacking), ())
