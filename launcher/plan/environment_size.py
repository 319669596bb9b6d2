# SPDX-License-Identifier: Apache-2.0
"""How long the longest variable of a plan gets: lists of endpoints grow with the nodes, and Linux bounds a string."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from launcher.plan.environment import endpoint
from launcher.plan.plan import Plan, planned_endpoints

_ANY_PORT = 65535


def longest(plan: Plan, addresses: Mapping[int, str]) -> tuple[str, int]:
    """Name and bytes of the longest "name=value", its end included.

    Args:
        addresses: node id -> address; nodes without one are counted as if they had the longest that there is.
    """
    widest = max(addresses.values(), key=len, default="")
    known = {node.node_id: addresses.get(node.node_id, widest) for node in plan.nodes}
    endpoints = planned_endpoints(plan, known)
    sizes = {
        "PADDLE_PSERVERS_IP_PORT_LIST": sum(_size(one.dense) for one in endpoints.values()),
        "PADDLE_PSERVERS_SPARSE_IP_PORT_LIST": sum(_size(one.sparse) for one in endpoints.values()),
        "PADDLE_TRAINER_ENDPOINTS": _size(
            endpoint(known[node_id], _ANY_PORT) for node_id in plan.trainer_nodes
        ),
    }
    name = max(sizes, key=lambda one: len(one) + sizes[one])
    return name, len(name) + 1 + sizes[name]


def _size(texts: Iterable[str]) -> int:
    return sum(len(text) + 1 for text in texts)
