# SPDX-License-Identifier: Apache-2.0
"""The inputs of the preflight checks: one node's answers, and a job's requirements for all nodes."""

from __future__ import annotations

from paddle_cluster.nodes.needs import Need
from paddle_node.contract.classes import dataclass, field
from paddle_node.contract.probed import Route
from paddle_node.contract.to_launcher import Probed


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
