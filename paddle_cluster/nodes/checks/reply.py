# SPDX-License-Identifier: Apache-2.0
"""The inputs of the preflight checks: one node's answers, its needs, and a job's requirements for all nodes.

Needs are conservative estimates of the descriptors, threads and memory that a plan takes on each node.
"""

from __future__ import annotations

from collections import Counter

from paddle_cluster.config.options import Mode
from paddle_cluster.plan.plan import Plan
from paddle_node.contract.classes import dataclass, field
from paddle_node.contract.probed import Route
from paddle_node.contract.to_launcher import Probed

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


@dataclass(frozen=True)
class Reply:
    """One node's answers during preflight, or why there are none.

    Attributes:
        error: why the node could not be queried, or empty.
        outcome: the result in one or two words if there is an error.
        python: the job's interpreter on the node, as configured.
        answer: its answer to `probe`.
        routes: the results of its attempts to reach other nodes.
        neighbours: the IDs of nodes that write to the same folder.
        clock_offset_s: the node's clock minus this machine's, accurate to `clock_error_s`.
        login_s: seconds from the start of the connection to the agent's greeting.
        hostname: the node's own name.
        is_local: whether this is an embedded node: a folder of this machine.
    """

    name: str
    error: str = ""
    answer: Probed = field(default_factory=Probed)
    node_id: int = 0
    routes: tuple[Route, ...] = ()
    neighbours: tuple[int, ...] = ()
    clock_offset_s: float = 0.0
    clock_error_s: float = 0.0
    login_s: float = 0.0
    hostname: str = ""
    is_local: bool = False
    need: Need = field(default_factory=Need)
    python: str = "python3"
    outcome: str = "no answer"


@dataclass(frozen=True)
class Demands:
    """The requirements that every node must meet.

    Attributes:
        modules: the modules that the job's Python must be able to import; if there are any, Python must be 3.11 or
            newer.
        port_is_explicit: whether a busy port is a problem rather than a reason to take the next one.
        allow_mismatch: whether nodes may differ in Python, module versions and code.
        bootstrap: whether the job brings its own packages: only Python 3.11 or newer is then required.
        use_gpu: whether the job computes on GPUs.
        deployed: whether the job runs in an existing directory of the nodes (--job_workspace).
        kernels: the platforms for which this installation has compiled kernels; None means unknown for the nodes.
        values_in_files: the names of variables whose values are too long for an environment.
    """

    modules: tuple[str, ...]
    port_is_explicit: bool
    allow_mismatch: bool
    bootstrap: bool = False
    use_gpu: bool = False
    deployed: bool = False
    kernels: frozenset[str] | None = None
    values_in_files: tuple[str, ...] = ()
