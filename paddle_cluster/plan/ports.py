# SPDX-License-Identifier: Apache-2.0
"""Assigns positions to trainers, and chooses the ports of a job for trainers and for parameter servers.

Trainers use one port for MASTER_PORT, then one for each trainer of a machine. They form a run of adjacent ports, the
same on every node. Its start is derived from the job's ID, so that two jobs that start simultaneously try different
runs. Every node is asked about a few runs, and the first one that is free everywhere is used.

A `paddle pserver` finds free ports by itself and reports its endpoints. A Fluid script binds the port that its
environment names, and every process gets all endpoints before it starts. A job therefore uses one port that is free on
all pserver nodes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from paddle_cluster.errors import PreflightError
from paddle_node.contract.classes import NamedTuple, dataclass

# Below the usual ephemeral range, so that no outgoing connection takes such a port in the meantime.
FIRST_PORT = 20000
END_PORT = 32768
TRIES = 4

Taken = Sequence[tuple[int, str]]
"""Occupied ports, each with its owner."""

SPARES = 15
_END = 65536


class TrainerPlace(NamedTuple):
    """The position of one trainer: its rank, node and machine, and its indices there.

    Attributes:
        node_rank: index of its node among the nodes that have trainers.
        local_rank, local_size: its index on its node, and the number of trainers there.
        slot, slots: its index on its machine, and the number of trainers there; embedded nodes share a machine.
    """

    rank: int
    node_id: int
    node_rank: int
    local_rank: int
    local_size: int
    slot: int
    slots: int


def trainer_places(trainer_nodes: Sequence[int], *, one_machine: bool) -> tuple[TrainerPlace, ...]:
    """Return the positions of all trainers, by rank.

    Args:
        trainer_nodes: node ID by rank.
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
        found.append(TrainerPlace(rank, node_id, node_ranks[node_id], local_rank, local_size, slot, slots))
    return tuple(found)


def share(count: int, place: TrainerPlace) -> range:
    """Return a trainer's share of its machine's `count` cores or GPUs; some are shared if there are too few."""
    first = place.slot * count // place.slots
    return range(first, max((place.slot + 1) * count // place.slots, first + 1)) if count else range(0)


@dataclass(frozen=True)
class ServicePorts:
    """The candidate ports for the trainers of one job.

    Attributes:
        reserved: the pservers' ports, which runs never overlap.
    """

    job_id: str
    trainer_places: tuple[TrainerPlace, ...]
    reserved: range

    @cached_property
    def runs(self) -> tuple[int, ...]:
        """Return the first ports of candidate runs, best first; the master port is the first port of a run."""
        size = 1 + max(place.slots for place in self.trainer_places)
        places = [
            at
            for at in range(FIRST_PORT, END_PORT - size + 1, size)
            if at >= self.reserved.stop or at + size <= self.reserved.start
        ]
        digest = hashlib.sha256(self.job_id.encode()).digest()
        start = int.from_bytes(digest[:4], "big")
        tried = (
            start + number * len(places) // TRIES for number in range(TRIES)
        )  # far apart: an adjacent job may be large
        return tuple(dict.fromkeys(places[at % len(places)] for at in tried))

    def asked(self, node_id: int) -> list[int]:
        """Return the ports that a node must check for being free."""
        return self._by_node.get(node_id, [])

    @cached_property
    def _by_node(self) -> dict[int, list[int]]:
        found: dict[int, set[int]] = {}
        for first in self.runs:
            for node_id, port in self._run(first):
                found.setdefault(node_id, set()).add(port)
        return {node_id: sorted(ports) for node_id, ports in found.items()}

    def choose(self, busy: Mapping[int, Taken]) -> int:
        """Return the first port of a run that is free on all nodes.

        Args:
            busy: the occupied ports, by node ID.

        Raises:
            PreflightError: every run has an occupied port; the message names one.
        """
        taken = {(node_id, port): owner for node_id, ports in busy.items() for port, owner in ports}
        for first in self.runs:
            if not any(place in taken for place in self._run(first)):
                return first
        node_id, port = next(place for place in self._run(self.runs[0]) if place in taken)
        raise PreflightError(
            f"node {node_id}: port {port}, chosen for the trainers, is in use by "
            f"{taken[node_id, port]}, and {len(self.runs) - 1} other port ranges also have a port "
            "in use; submit again to try others"
        )

    def _run(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield (node ID, port) for every port of a run."""
        yield self.trainer_places[0].node_id, first
        for place in self.trainer_places:
            yield place.node_id, trainer_port(first, place)


def trainer_port(first: int, place: TrainerPlace) -> int:
    """Return one trainer's port in the run that begins with `first`."""
    return first + 1 + place.slot


@dataclass(frozen=True)
class PserverPorts:
    """The candidate ports for the pservers of one job.

    Attributes:
        configured: the ports of every pserver, dense ones first.
        spare: further ports that are checked; the first one that is free everywhere replaces a single configured one.
    """

    configured: range
    spare: range

    @property
    def asked(self) -> tuple[int, ...]:
        """Return the ports that a pserver's node must check for being free."""
        return (*self.configured, *self.spare)

    def choose(self, busy: Mapping[int, Taken]) -> int:
        """Return the first port of every pserver, the same on all nodes.

        Args:
            busy: the occupied ports, by node ID; without spare ports they are ignored.

        Raises:
            PreflightError: none is free on all nodes.
        """
        return self.free(busy)[0]

    def free(self, busy: Mapping[int, Taken]) -> Sequence[int]:
        """Return all possible first ports, best first, like `choose`."""
        if not self.spare:
            return self.configured[:1]
        taken = {port: (node_id, owner) for node_id, ports in busy.items() for port, owner in ports}
        free = [port for port in self.asked if port not in taken]
        if free:
            return free
        node_id, owner = taken[self.configured.start]
        raise PreflightError(
            f"node {node_id}: port {self.configured.start}, chosen for the pservers, is in use by "
            f"{owner}, and each of the next {len(self.spare)} is also in use on some node; give "
            "a different port with --port"
        )


def fluid_ports(port: int, *, is_explicit: bool) -> PserverPorts:
    """Return the candidate ports of Fluid scripts, whose pservers have one port each.

    Args:
        is_explicit: only this port is allowed.
    """
    after = range(port + 1, port + 1 if is_explicit else min(port + 1 + SPARES, _END))
    return PserverPorts(range(port, port + 1), after)
