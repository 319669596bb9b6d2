# SPDX-License-Identifier: Apache-2.0
"""Executes `relay_plan`: opens the nodes' relays, sends each node its sources, adds late nodes.

Belongs to the loop's thread. A node that cannot reach other nodes, or does not answer in time, receives everything from
the launcher.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from paddle_cluster.files import relay_plan
from paddle_cluster.files.dispatch import Dispatch, DispatchState
from paddle_cluster.files.relay_plan import Member, RelayRoute
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.system import job_certificate
from paddle_node.contract.to_launcher import Relaying

HOLD_S = 3.0  # from the first answer until the plan is made without the missing ones
OPEN_S = 3.0  # for opening a node's relay


class RelayRun:
    """The relaying of files between a job's nodes, in progress."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        remote = [record for record in roster.all() if record.node.local_address is None]
        self._remote = {record.node.node_id for record in remote}
        self._certificate: job_certificate.Certificate | None = None
        self._hold_until: float | None = None
        self._planned: list[Member] | None = None
        self._ports: dict[int, tuple[str, int]] = {}
        self._opening: dict[int, float] = {}
        self._waiting: dict[int, RelayRoute] = {}

    def takes(self, record: NodeRecord) -> bool:
        """Return whether a node's trees must wait for a relay plan before they are sent."""
        return len(self._remote) > relay_plan.LEAST_TAKERS and record.node.node_id in self._remote

    def restart(self, record: NodeRecord) -> None:
        """Reset the state of a node that was lost or restarts with a new agent."""
        node_id = record.node.node_id
        for known in (self._ports, self._opening, self._waiting):
            known.pop(node_id, None)
        if self._planned is not None:
            self._planned = [member for member in self._planned if member.node_id != node_id]

    def leave(self, record: NodeRecord) -> None:
        """Mark a node as unable to receive all files, so that nodes waiting for it use other sources."""
        if record.node.node_id in self._remote:
            record.send("relay", open=False)
        self.restart(record)

    def relaying(self, record: NodeRecord, relay: Relaying) -> None:
        """Record the address of a node's relay, if it could be opened."""
        node_id = record.node.node_id
        self._opening.pop(node_id, None)
        if relay.port:
            self._ports[node_id] = (relay.address, relay.port)
        self.advance()

    def advance(self) -> None:
        """Take all steps of the relay plan that are possible now.

        Must be called after every answer, and at regular intervals.
        """
        held = [record for record in self._roster.live() if self._is_held(record)]
        if not held:
            return
        now = time.monotonic()
        if self._hold_until is None:
            self._hold_until = now + HOLD_S
        answered = [record for record in self._roster.live() if self._has_answered(record)]
        if self._planned is None:
            if len(answered) < len(self._expected()) and now < self._hold_until:
                return
            self._plan(answered)
        for record in held:
            if (
                record.node.node_id not in self._waiting
                and self._has_answered(record)
                and self._is_held(record)
            ):
                self._add(record)
        self._send(now)

    def close(self) -> None:
        """Close the relays of all nodes."""
        for node_id in self._ports:
            self._roster.nodes[node_id].send("relay", open=False)
        self._ports.clear()

    @property
    def relayed_to(self) -> int:
        """Return the number of nodes that received bytes from other nodes."""
        return sum(
            any(dispatch.bytes_relayed for dispatch in record.delivery.dispatches.values())
            for record in self._roster.all()
        )

    def _expected(self) -> list[NodeRecord]:
        return [r for r in self._roster.all() if r.node.node_id in self._remote and r.delivery.error is None]

    def _has_answered(self, record: NodeRecord) -> bool:
        return (
            record.node.node_id in self._remote
            and bool(record.delivery.dispatches)
            and all(
                dispatch.state not in (DispatchState.NEW, DispatchState.OFFERED)
                for dispatch in record.delivery.dispatches.values()
            )
        )

    @staticmethod
    def _is_held(record: NodeRecord) -> bool:
        return any(dispatch.state is DispatchState.HELD for dispatch in record.delivery.dispatches.values())

    def _plan(self, answered: Sequence[NodeRecord]) -> None:
        members = [_member(record) for record in answered]
        found = relay_plan.routes(members, self._reaches)
        by_id = {member.node_id: member for member in members}
        order = [by_id[route.node_id] for route in found]
        self._planned = [member for member in members if not member.lacking] + order
        self._follow(found)

    def _add(self, record: NodeRecord) -> None:
        """Add a node that answered after the plan was made."""
        assert self._planned is not None
        member = _member(record)
        others = [other for other in self._planned if other.node_id in self._ports]
        self._follow([relay_plan.late(member, others, self._reaches)])
        self._planned.append(member)

    def _follow(self, found: Sequence[RelayRoute]) -> None:
        for route in found:
            if route.sources:
                self._waiting[route.node_id] = route
        needed = {node_id for route in found if route.sources for node_id in (route.node_id, *route.sources)}
        for node_id in sorted(needed - self._ports.keys() - self._opening.keys()):
            self._open(self._roster.nodes[node_id])
        for route in found:
            if not route.sources:
                for dispatch in _held(self._roster.nodes[route.node_id]):
                    dispatch.send()

    def _open(self, record: NodeRecord) -> None:
        if self._certificate is None:
            self._certificate = job_certificate.make()
        self._opening[record.node.node_id] = time.monotonic() + OPEN_S
        record.send(
            "relay",
            open=True,
            address=(record.reports.answer.address or None) if record.reports.answer else None,
            certificate=self._certificate.certificate,
            key=self._certificate.key,
        )

    def _send(self, now: float) -> None:
        """Send nodes their sources after these have opened or failed to open."""
        for node_id, until in list(self._opening.items()):
            if now >= until:
                del self._opening[node_id]
        for node_id, route in list(self._waiting.items()):
            if not self._opening.keys().isdisjoint((node_id, *route.sources)):
                continue
            del self._waiting[node_id]
            record = self._roster.nodes[node_id]
            sources = [self._ports[source] for source in route.sources if source in self._ports]
            held = _held(record)
            if sources and node_id in self._ports and record.link is not None:
                for dispatch in held:
                    dispatch.send_for_fetch(route.direct)
                fields = {"trees": [dispatch.tree for dispatch in held], "sources": sources}
                record.link.send_stream([("fetch", fields, b"")])
            else:
                for dispatch in held:
                    dispatch.send()

    def _reaches(self, node_id: int, other: int) -> bool:
        results = self._roster.nodes[node_id].reports.routes
        return all(route.ok for route in results or () if route.peer == other)


def _held(record: NodeRecord) -> list[Dispatch]:
    return [
        dispatch for dispatch in record.delivery.dispatches.values() if dispatch.state is DispatchState.HELD
    ]


def _member(record: NodeRecord) -> Member:
    lacking: dict[str, int] = {}
    offered: set[str] = set()
    for dispatch in record.delivery.dispatches.values():
        offered |= dispatch.offered
        if dispatch.state is DispatchState.HELD:
            lacking.update(dispatch.lacking)
    return Member(record.node.node_id, lacking, frozenset(offered))
