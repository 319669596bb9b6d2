# SPDX-License-Identifier: Apache-2.0
"""One node's answers, and what a job demands of all nodes."""

from __future__ import annotations

from dataclasses import field

from paddle_cluster.nodes.needs import Need
from paddle_cluster.plan.answers import Answer
from paddle_node.contract.classes import dataclass
from paddle_node.contract.probed import Way


@dataclass(frozen=True)
class Reply:
    """What is known of one node after preflight.

    Attributes:
        error: why the node could not be asked, or empty.
        python: the job's interpreter there, as configured.
        answer: its answer to `probe`.
        ways: what came of trying to reach other nodes.
        neighbours: ids of nodes that write to the same folder.
        clock_offset_s: the node's clock minus ours, right to `clock_error_s`.
        login_s: seconds from the start of the connection to the agent's first word.
        hostname: what the node calls itself.
        is_local: an embedded node: a folder of this machine.
    """

    name: str
    error: str = ""
    answer: Answer = field(default_factory=Answer)
    node_id: int = 0
    ways: tuple[Way, ...] = ()
    neighbours: tuple[int, ...] = ()
    clock_offset_s: float = 0.0
    clock_error_s: float = 0.0
    login_s: float = 0.0
    hostname: str = ""
    is_local: bool = False
    need: Need = field(default_factory=Need)
    python: str = "python3"


@dataclass(frozen=True)
class Demands:
    """What every node has to offer.

    Attributes:
        modules: what the job's Python must be able to import; with any, it must be 3.11 or newer.
        port_is_explicit: a busy port is then a problem, not a reason to take the next one.
        allow_mismatch: let nodes differ in Python, module versions and code.
        bootstrap: the job brings its packages along: Python must be there, 3.11 or newer, and nothing else.
        use_gpu: the job computes on GPUs.
        deployed: the job runs in a directory that the nodes have (--job_workspace).
        kernels: platforms that there are compiled loops for here; None: nothing is known of those of the nodes.
        values_in_files: names of variables whose values are longer than an environment can hold.
    """

    modules: tuple[str, ...]
    port_is_explicit: bool
    allow_mismatch: bool
    bootstrap: bool = False
    use_gpu: bool = False
    deployed: bool = False
    kernels: frozenset[str] | None = None
    values_in_files: tuple[str, ...] = ()
