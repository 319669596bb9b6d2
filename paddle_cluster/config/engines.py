# SPDX-License-Identifier: Apache-2.0
"""The table of engines (--engine): their properties, and the nodes that some of them provide.

The behavior of an engine is in the module with its name in `paddle_cluster.engines`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from paddle_cluster.config.hosts import Host, HostError, HostList, parse_host
from paddle_cluster.errors import ConfError, UsageError
from paddle_cluster.system.installation import COMMAND
from paddle_node.contract.classes import NamedTuple

ANSWER_S = 30.0
ALLOCATED = "SLURM_JOB_NODELIST"


class NodeRequest(NamedTuple):
    """The user's settings from which an engine determines the job's nodes.

    Attributes:
        nnodes: --nnodes, or None.
        read: the values of conf.py's names, without HOSTS.
        where: returns the place in conf.py that assigns a name, or the file's name.
        given_hosts: the place in conf.py that assigns HOSTS, or empty.
    """

    nnodes: int | None
    environ: Mapping[str, str]
    read: Mapping[str, Any]
    where: Callable[[str], str]
    given_hosts: str


class EngineRow(NamedTuple):
    """A row of the table of engines: the properties of one --engine value.

    Attributes:
        start_timeout: the name of conf.py that limits the start of agents.
        hosts: finds the nodes that the engine itself provides; None: HOSTS, --hosts or --hostfile names them.
        can_choose: whether --include and --exclude can select nodes.
        has_residents: whether agents can stay on the nodes (RESIDENT_S).
    """

    name: str
    start_timeout: str = "CONNECT_TIMEOUT_S"
    hosts: Callable[[NodeRequest], HostList] | None = None
    can_choose: bool = True
    has_residents: bool = False


def slurm_nodes(asked: NodeRequest) -> HostList:
    """Return the nodes of this process's allocation, or placeholders for nodes to request: slurm-0, slurm-1, ...

    Raises:
        UsageError: there is no allocation and no --nnodes, it has several components, or Slurm does not answer.
    """
    if components := asked.environ.get("SLURM_HET_SIZE"):
        raise UsageError(
            f"this is a heterogeneous Slurm job of {components} components, on which --engine=slurm cannot run. "
            "Request all nodes as one component: `salloc --nodes=N` without ':'"
        )
    is_requested = not asked.environ.get(ALLOCATED) and asked.nnodes is not None
    if is_requested:
        hosts, source = tuple(parse_host(f"slurm-{index}") for index in range(asked.nnodes or 0)), "Slurm"
    else:
        hosts, source = allocated(asked.environ), "Slurm's allocation"
    return HostList(hosts, (source,) * len(hosts), source, is_requested=is_requested)


def allocated(environ: Mapping[str, str]) -> tuple[Host, ...]:
    """Return the hosts of the Slurm allocation that this process runs in, in Slurm's order.

    Raises:
        UsageError: there is no allocation, or `scontrol` does not answer.
    """
    nodes = environ.get(ALLOCATED)
    if not nodes:
        raise UsageError(
            f"number of nodes unknown: this is not a Slurm allocation ({ALLOCATED} is not set). "
            f"Request one with --nnodes=N or `salloc --nodes=N {COMMAND} ...`"
        )
    try:
        answer = subprocess.run(
            ["scontrol", "show", "hostnames", nodes],
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"scontrol did not list the hosts of {nodes!r:.200}: {error}") from error
    try:
        return tuple(parse_host(name) for name in answer.stdout.split())
    except HostError as error:
        raise UsageError(f"scontrol show hostnames {nodes!r:.200}: {error}") from error


def pods(asked: NodeRequest) -> HostList:
    """Return the nodes of a Kubernetes job: pod-0, pod-1, ...; --nnodes or K8S_NODES sets their number.

    Raises:
        ConfError: the number is missing or given twice, or no image is given.
    """
    count = asked.nnodes or asked.read["K8S_NODES"]
    if asked.given_hosts:
        raise ConfError(
            asked.given_hosts,
            "HOSTS names machines, but --engine=kubernetes starts pods, whose number comes from "
            "--nnodes=N or K8S_NODES; remove HOSTS, or give a different file with --conf=FILE",
        )
    if not count:
        raise ConfError(asked.where(""), "number of pods unknown: give --nnodes=N, or K8S_NODES in conf.py")
    if not asked.read["K8S_IMAGE"]:
        raise ConfError(
            asked.where(""),
            "K8S_IMAGE is missing; expected an image that contains python3, numpy and pyzmq, for "
            "example K8S_IMAGE = 'registry.example.org/paddle:1'",
        )
    place = "--nnodes" if asked.nnodes else asked.where("K8S_NODES")
    hosts = tuple(parse_host(f"pod-{index}") for index in range(count))
    return HostList(hosts, (place,) * count, "--engine=kubernetes")


_ROWS = (
    EngineRow("ssh", has_residents=True),
    EngineRow("openmpi"),
    EngineRow("slurm", hosts=slurm_nodes),
    EngineRow("kubernetes", "K8S_START_TIMEOUT_S", hosts=pods, can_choose=False),
)
ENGINES: Mapping[str, EngineRow] = MappingProxyType({row.name: row for row in _ROWS})
