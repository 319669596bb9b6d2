# SPDX-License-Identifier: Apache-2.0
"""Where trainers sit, and the ports of a job: those that trainers may listen on, and those of parameter servers.

Trainers have one for MASTER_PORT, then one for each trainer of a machine. They are a run of adjacent ports, the same on
every node. Where it begins follows from the job's id, so that two jobs that start together look in different places;
every node is asked about a few runs, and the first one that is free everywhere is taken.

A `paddle pserver` finds free ports by itself and tells where it is. A Fluid script binds the port that its
environment names, and every process is told all endpoints before it starts: one port that is free on all of its nodes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from paddle_cluster.errors import PreflightError
from paddle_node.contract.classes import dataclass

# Below the usual ephemeral range, so that no outgoing connection takes such a port in between.
FIRST_PORT = 20000
END_PORT = 32768
TRIES = 4

Taken = Sequence[tuple[int, str]]
"""Ports that are taken, each with its owner."""

SPARES = 15
_END = 65536


class Seat(NamedTuple):
    """Where one trainer sits.

    Attributes:
        node_rank: index of its node among the nodes that have trainers.
        local_rank, local_size: which one of how many on its node.
        slot, slots: which one of how many on its machine; embedded nodes share one.
    """

    rank: int
    node_id: int
    node_rank: int
    local_rank: int
    local_size: int
    slot: int
    slots: int


def seats(trainer_nodes: Sequence[int], *, one_machine: bool) -> tuple[Seat, ...]:
    """The seats by rank.

    Args:
        trainer_nodes: node id by rank.
        one_machine: all nodes are embedded nodes of this machine.
    """
    sizes = Counter(trainer_nodes)
    node_ranks = {node_id: index for index, node_id in enumerate(sizes)}
    before: Counter[int] = Counter()
    found = []
    for rank, node_id in enumerate(trainer_nodes):
        local_rank, local_size = before[node_id], sizes[node_id]
        before[node_id] += 1
        slot, slots = (rank, len(trainer_nodes)) if one_machine else (local_rank, local_size)
        found.append(Seat(rank, node_id, node_ranks[node_id], local_rank, local_size, slot, slots))
    return tuple(found)


def share(count: int, seat: Seat) -> range:
    """Which of `count` things of a machine are a seat's own; with fewer things than seats some share one."""
    first = seat.slot * count // seat.slots
    return range(first, max((seat.slot + 1) * count // seat.slots, first + 1)) if count else range(0)


@dataclass(frozen=True)
class ServicePorts:
    """Which ports one job may take.

    Attributes:
        reserved: the pservers' ports, which no run meets.
    """

    job_id: str
    seats: tuple[Seat, ...]
    reserved: range

    @cached_property
    def runs(self) -> tuple[int, ...]:
        """The first ports of the runs that may be taken, the best one first; the master port is the first of a run."""
        size = 1 + max(seat.slots for seat in self.seats)
        places = [
            at
            for at in range(FIRST_PORT, END_PORT - size + 1, size)
            if at >= self.reserved.stop or at + size <= self.reserved.start
        ]
        digest = hashlib.sha256(self.job_id.encode()).digest()
        start = int.from_bytes(digest[:4], "big")
        tried = (
            start + number * len(places) // TRIES for number in range(TRIES)
        )  # far apart: a neighbour is large
        return tuple(dict.fromkeys(places[at % len(places)] for at in tried))

    def asked(self, node_id: int) -> list[int]:
        """The ports that a node is asked about."""
        return self._by_node.get(node_id, [])

    @cached_property
    def _by_node(self) -> dict[int, list[int]]:
        found: dict[int, set[int]] = {}
        for first in self.runs:
            for node_id, port in self._run(first):
                found.setdefault(node_id, set()).add(port)
        return {node_id: sorted(ports) for node_id, ports in found.items()}

    def choose(self, busy: Mapping[int, Taken]) -> int:
        """The first port of a run that is free.

        Args:
            busy: what is taken, by node id.

        Raises:
            PreflightError: every run has a taken port; the message tells of one.
        """
        taken = {(node_id, port): owner for node_id, ports in busy.items() for port, owner in ports}
        for first in self.runs:
            if not any(place in taken for place in self._run(first)):
                return first
        node_id, port = next(place for place in self._run(self.runs[0]) if place in taken)
        raise PreflightError(
            f"node {node_id}: port {port}, meant for the trainers, is in use by {taken[node_id, port]}, and "
            f"{len(self.runs) - 1} other port ranges have a port in use too; submit again to try others"
        )

    def _run(self, first: int) -> Iterator[tuple[int, int]]:
        """(node id, port) of every port of a run."""
        yield self.seats[0].node_id, first
        for seat in self.seats:
            yield seat.node_id, trainer_port(first, seat)


def trainer_port(first: int, seat: Seat) -> int:
    """The port of one trainer in the run that begins with `first`."""
    return first + 1 + seat.slot


@dataclass(frozen=True)
class PserverPorts:
    """Which ports the pservers of one job may take.

    Attributes:
        configured: the ports of every pserver, dense ones first.
        spare: ports that are asked about too; the first one that is free everywhere stands in for a single
            configured one.
    """

    configured: range
    spare: range

    @property
    def asked(self) -> tuple[int, ...]:
        """The ports that a pserver's node is asked about."""
        return (*self.configured, *self.spare)

    def choose(self, busy: Mapping[int, Taken]) -> int:
        """The first port of every pserver.

        Args:
            busy: what is taken, by node id; where there are no spare ports it does not matter.

        Raises:
            PreflightError: none is free on all nodes.
        """
        if not self.spare:
            return self.configured.start
        taken = {port: (node_id, owner) for node_id, ports in busy.items() for port, owner in ports}
        free = next((port for port in self.asked if port not in taken), None)
        if free is not None:
            return free
        node_id, owner = taken[self.configured.start]
        raise PreflightError(
            f"node {node_id}: port {self.configured.start}, meant for the pservers, is in use by {owner}, and each "
            f"of the next {len(self.spare)} is in use on a node too; give another one with --port"
        )


def fluid_ports(port: int, *, is_explicit: bool) -> PserverPorts:
    """The ports of Fluid scripts, which have one each.

    Args:
        is_explicit: it is to be this port and no other.
    """
    after = range(port + 1, port + 1 if is_explicit else min(port + 1 + SPARES, _END))
    return PserverPorts(range(port, port + 1), after)
