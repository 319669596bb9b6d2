# SPDX-License-Identifier: Apache-2.0
"""Conservative estimates of the descriptors, threads and memory that a plan needs on each node."""

from __future__ import annotations

from collections import Counter

from paddle_cluster.config.options import Mode
from paddle_cluster.plan.plan import Plan
from paddle_node.contract.classes import dataclass

_FILES = 64  # an interpreter with its libraries, logs, and the event loop of ZeroMQ
_FILES_A_CONNECTION = 2
_THREADS = 16  # an interpreter, ZeroMQ's threads, readers
MEMORY = 256 << 20  # an interpreter with numpy, before it holds a model


@dataclass(frozen=True)
class Need:
    """An estimate of the resources that the processes on one node need.

    Attributes:
        files: descriptors of the process that needs the most.
        threads: threads of all processes together.
        memory_bytes: memory of all processes together, without any model.
    """

    processes: int = 0
    files: int = 0
    threads: int = 0
    memory_bytes: int = 0


def needs(plan: Plan) -> dict[int, Need]:
    """Return the estimated needs of each node, by node ID."""
    pservers, trainers = Counter(plan.pserver_nodes), Counter(plan.trainer_nodes)
    ports = len(plan.pserver_ports.configured) if plan.pserver_nodes else 0
    server_files = _FILES + _FILES_A_CONNECTION * len(plan.trainer_nodes) * ports
    if plan.mode is Mode.COLLECTIVE:  # each may connect to all
        trainer_files = _FILES + _FILES_A_CONNECTION * len(plan.trainer_nodes)
    else:
        trainer_files = _FILES + _FILES_A_CONNECTION * len(plan.pserver_nodes) * ports
    found = {}
    for node in plan.nodes:
        processes = pservers[node.node_id] + trainers[node.node_id]
        found[node.node_id] = Need(
            processes=processes,
            files=max(
                server_files if pservers[node.node_id] else 0, trainer_files if trainers[node.node_id] else 0
            ),
            threads=processes * _THREADS,
            memory_bytes=processes * MEMORY,
        )
    return found
