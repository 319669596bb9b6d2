# SPDX-License-Identifier: Apache-2.0
"""Checks that nodes can reach each other, and that the ports of parameter servers are free."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.findings import NAMED, Finding
from paddle_cluster.text.sizes import spans
from paddle_node.contract.probed import Busy, Route

_NEXT = "check the firewalls and MTUs between them, or name a different network interface in PADDLE_NIC"


def check_routes(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Yield findings for nodes that are cut off from all other nodes, then for each remaining broken route."""
    chosen = {reply.node_id: reply for reply in replies if not reply.error}
    routes = chosen_routes(replies)
    towards: dict[int, list[Route]] = {node_id: [] for node_id in chosen}
    away: dict[int, list[Route]] = {node_id: [] for node_id in chosen}
    for (source, peer), route in routes.items():
        towards[peer].append(route)
        away[source].append(route)
    deaf = {peer for peer in chosen if _all_fail(towards[peer])}
    mute = {source for source in chosen if _all_fail(away[source])}
    for node_id in chosen:
        if node_id in deaf:
            tried = towards[node_id]
            why = f"{_reasons(tried)}; {_NEXT}"
            text = f"none of the {len(tried)} other nodes can reach it at {tried[0].address}: {why}"
            shared = f"no other node can reach it: {why}"
            yield Finding(chosen[node_id].name, "route", text, shared=shared)
        if node_id in mute:
            tried = away[node_id]
            text = f"cannot reach any of the {len(tried)} other nodes: {_reasons(tried)}; {_NEXT}"
            shared = f"cannot reach any other node: {_reasons(tried)}; {_NEXT}"
            yield Finding(chosen[node_id].name, "route", text, shared=shared)
    broken = {
        (source, peer): route
        for (source, peer), route in routes.items()
        if not (route.ok or source in mute or peer in deaf)
    }
    shared = ""
    if len(broken) > NAMED:
        reasons = _reasons(list(broken.values()))
        shared = f"cannot reach some other nodes ({len(broken)} broken routes in all): {reasons}; {_NEXT}"
    for (source, peer), route in broken.items():
        place = f"{chosen[peer].name} at {route.address}"
        text = f"cannot reach {place}: {route.text} ({_reverse_route(routes, source, peer)}); {_NEXT}"
        yield Finding(chosen[source].name, "route", text, shared=shared)


def chosen_routes(replies: Sequence[Reply]) -> dict[tuple[int, int], Route]:
    """Return the result of each (from, to) route at the addresses that the job uses."""
    addresses = {reply.node_id: reply.answer.address for reply in replies if not reply.error}
    return {
        (reply.node_id, route.peer): route
        for reply in replies
        for route in reply.routes
        if addresses.get(route.peer) == route.address and reply.node_id in addresses
    }


def _all_fail(tried: Sequence[Route]) -> bool:
    return len(tried) > 1 and not any(route.ok for route in tried)


def _reasons(tried: Sequence[Route]) -> str:
    return ", ".join(dict.fromkeys(route.text for route in tried if not route.ok))


def _reverse_route(routes: Mapping[tuple[int, int], Route], source: int, peer: int) -> str:
    back = routes.get((peer, source))
    if back is None:
        return "the other direction was not tried"
    return "the other direction works" if back.ok else "the other direction fails, too"


def check_ports(replies: Sequence[Reply], demands: Demands) -> Iterator[Finding]:
    """Yield one finding per node and process that uses ports of the parameter servers."""
    for reply in replies:
        if reply.error:
            continue
        owners: dict[str, list[int]] = {}
        for busy in reply.answer.busy_ports:
            owners.setdefault(busy.owner, []).append(busy.port)
        for owner, ports in owners.items():
            said = f"{spans(ports)} {'is' if len(ports) == 1 else 'are'} in use by"
            after = (
                "; end it, or give another --port"
                if demands.port_is_explicit
                else "; the job uses the next free ones"
            )
            # nodes that run the same program on the same ports are reported in one line, without their numbers
            alike = re.sub(r"^pid \d+: ?", "", owner)
            yield Finding(
                reply.name,
                "port",
                f"{said} {owner}{after}",
                serious=demands.port_is_explicit,
                shared=f"{said} {alike}{after}",
            )


def busy_ports(found: Sequence[Busy]) -> str:
    """Format ports that are in use for a table, with their owners."""
    return f"busy: {spans([one.port for one in found])}" if found else "free"
