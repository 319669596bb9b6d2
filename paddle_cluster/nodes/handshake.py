# SPDX-License-Identifier: Apache-2.0
"""The first requests to a node, and its answers. They change nothing on the node."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from paddle_cluster.config.entry import Entry
from paddle_cluster.config.options import Mode
from paddle_cluster.nodes import preflight
from paddle_cluster.plan import machines
from paddle_cluster.plan.checkpoints import checkpoint_dir, resumed_from
from paddle_cluster.plan.plan import Node, Plan
from paddle_cluster.system.clock import NodeClock
from paddle_node.contract.classes import dataclass, field
from paddle_node.contract.probed import Part, Route
from paddle_node.contract.to_launcher import Hello, Pong, Probed, Reached, Reserved, Verified, Verifying

_SPARE_S = 2.0  # of PREFLIGHT_TIMEOUT_S, for the transmission of the answer
_PACKETS_A_SECOND = (
    320  # lines from all nodes together: each wakes threads, and a core handles a few thousand wake-ups
)
_MOST_PACKETS_A_SECOND = 1000  # when more lines arrive than can be read one by one
_SHORTEST_PACE_S, _USUAL_PACE_S = 0.01, 0.2


def probe_of(
    plan: Plan, node: Node, need_bytes: int = 0, need_files: int = 0, gpus: bool = False
) -> dict[str, Any]:
    """Return the fields of the `probe` message for a node.

    Args:
        need_bytes, need_files: required free space and inodes.
        gpus: whether to query nvidia-smi too, which may take a second or two.
    """
    settings = plan.settings
    is_pserver = node.node_id in plan.pserver_nodes
    is_trainer = node.node_id in plan.trainer_nodes
    is_there = settings.job.workspace is not None
    entry = settings.job.entry if is_there and is_trainer else Entry()
    return {
        "nic": settings.cluster.nic or None,
        "address": node.local_address,
        "ports": [
            *(plan.pserver_ports.asked if is_pserver else ()),
            *plan.service_ports.asked(node.node_id),
        ],
        "modules": list(preflight.asked_modules(plan.mode, settings.cluster.wire, settings.job.bootstrap)),
        "need_bytes": need_bytes,
        "need_files": need_files,
        "workspace": node.job_dir if is_there else None,
        "entry": entry.path or None,
        "module": entry.module or None,
        "code": is_there and (is_trainer or settings.job.mode is Mode.FLUID),
        "write_to": checkpoint_dir(settings) if is_pserver else None,
        "resumed_from": resumed_from(settings, node.job_dir) if is_pserver else None,
        "token": None if node.host.is_local else plan.job_id,
        "node_id": node.node_id,
        "gpus": gpus,
        "variables": list(machines.INTERFACE_VARIABLES)
        if is_trainer and plan.mode is Mode.COLLECTIVE
        else [],
        "limit_s": max(1.0, settings.limits.preflight_timeout_s - _SPARE_S),
    }


def pace_s(nodes: int) -> float:
    """Return the time in seconds for which a node collects output before it sends, by the number of nodes."""
    return max(
        _SHORTEST_PACE_S, min(_USUAL_PACE_S, nodes / _PACKETS_A_SECOND), nodes / _MOST_PACKETS_A_SECOND
    )


@dataclass
class Introduction:
    """The facts that a node has reported about itself.

    Attributes:
        hostname: the node's own name.
        answer: the answer to `probe`; its address is replaced by the one chosen for the job.
        routes: the results of its probes to other nodes.
        neighbours: the IDs of nodes with marks in its ROOT_DIR.
        clock: the current offset of its clock.
        reading: the number of bytes read from a checkpoint, and the total.
        damaged: (path, problem) of each damaged checkpoint part on the node; None means no answer yet.
        reserved: the node's answer about the port of its pserver; None means no answer yet.
    """

    hostname: str = ""
    answer: Probed | None = None
    routes: tuple[Route, ...] | None = None
    neighbours: tuple[int, ...] = ()
    clock: NodeClock = field(default_factory=NodeClock)
    reading: tuple[int, int] = (0, 0)
    damaged: tuple[tuple[str, str], ...] | None = None
    reserved: Reserved | None = None

    def hello(self, hello: Hello) -> None:
        """Store the first frame of the node's agent."""
        self.hostname = hello.hostname
        self.clock.guess_s = hello.clock - time.time()

    def pong(self, pong: Pong) -> None:
        """Add a measurement of the node's clock from its answer to a ping."""
        if pong.clock is not None:
            self.clock.answered(pong.seq, pong.clock)

    def probed(self, probed: Probed) -> None:
        """Store the node's answers for preflight."""
        self.answer = machines.checked(probed)

    def reached(self, reached: Reached) -> None:
        """Store the results of the node's probes of its peers, and the nodes whose marks it sees."""
        self.routes, self.neighbours = reached

    def reservation_requested(self) -> None:
        """Record that the node was asked to reserve a port."""
        self.reserved = None

    def port_reserved(self, reserved: Reserved) -> None:
        """Store the node's answer about the port of its pserver."""
        self.reserved = reserved

    def verification_requested(self) -> None:
        """Record that the node was asked to verify a checkpoint."""
        self.reading, self.damaged = (0, 0), None

    def verifying(self, progress: Verifying) -> None:
        """Store the node's progress in reading a checkpoint."""
        self.reading = progress.bytes, progress.total

    def verified(self, verified: Verified) -> None:
        """Store the result of the node's verification."""
        self.damaged = verified.problems

    def take_parts(self, parts: tuple[Part, ...]) -> None:
        """Replace the checkpoint parts that the node is known to have."""
        if self.answer is not None:
            self.answer = self.answer._replace(facts=self.answer.facts._replace(checkpoints=parts))

    def take_address(self, own: str, chosen: Mapping[int, str]) -> None:
        """Use an address for the job's traffic: only its busy ports, routes and permitted cores count from now on.

        Args:
            chosen: the addresses of all nodes.
        """
        self.routes = tuple(route for route in self.routes or () if chosen.get(route.peer) == route.address)
        answer = self.answer
        if answer is None:
            return
        busy = answer.busy_at.get(own, answer.busy_ports)
        allowed = answer.facts.machine.cgroup.get("cores")
        cpus = min(answer.cpus, max(1, math.ceil(allowed))) if allowed else answer.cpus
        self.answer = answer._replace(address=own, cpus=cpus, busy_ports=busy)
