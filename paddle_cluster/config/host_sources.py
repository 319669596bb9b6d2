# SPDX-License-Identifier: Apache-2.0
"""Hosts that do not come from HOSTS of conf.py: a hostfile, a Slurm allocation, or pods."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.hostfile import read_hostfile
from paddle_cluster.config.hosts import Host, HostError, parse_host
from paddle_cluster.config.options import EngineKind
from paddle_cluster.config.selection import HostList
from paddle_cluster.errors import ConfError, UsageError
from paddle_cluster.system.installation import COMMAND

ANSWER_S = 30.0
ALLOCATED = "SLURM_JOB_NODELIST"


def hosts_elsewhere(arguments: Arguments, environ: Mapping[str, str]) -> HostList | None:
    """The hosts, where conf.py does not say which.

    Raises:
        ConfError: the hostfile is wrong.
        UsageError: there is no allocation and no word of how many nodes to ask for, or Slurm does not tell its hosts.
    """
    if arguments["hostfile"] is not None:
        return read_hostfile(arguments["hostfile"])
    if arguments["engine"] is not EngineKind.SLURM:
        return None
    if waits_for_nodes(arguments, environ):
        hosts, source = (
            tuple(parse_host(f"slurm-{index}") for index in range(arguments["nnodes"] or 0)),
            "Slurm",
        )
    else:
        hosts, source = allocated(environ), "Slurm's allocation"
    return HostList(hosts, (source,) * len(hosts), source)


def waits_for_nodes(arguments: Arguments, environ: Mapping[str, str]) -> bool:
    """Whether Slurm is still to be asked for the nodes of a job."""
    outside = arguments["engine"] is EngineKind.SLURM and not environ.get(ALLOCATED)
    return outside and arguments["nnodes"] is not None


def allocated(environ: Mapping[str, str]) -> tuple[Host, ...]:
    """The hosts of the Slurm allocation that this process runs in, in Slurm's order.

    Raises:
        UsageError: there is none, or `scontrol` does not tell.
    """
    nodes = environ.get(ALLOCATED)
    if not nodes:
        raise UsageError(
            f"how many nodes? Here is no allocation of Slurm ({ALLOCATED} is not set); --nnodes=N asks for one, "
            f"and so does `salloc --nodes=N {COMMAND} ...`"
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
        raise UsageError(f"scontrol does not tell the hosts of {nodes!r:.200}: {error}") from error
    try:
        return tuple(parse_host(name) for name in answer.stdout.split())
    except HostError as error:
        raise UsageError(f"scontrol show hostnames {nodes!r:.200}: {error}") from error


def pods(count: int, given_hosts: str, image: str, where: str) -> tuple[Host, ...]:
    """The nodes: pod-0, pod-1, ...

    Args:
        count: --nnodes or K8S_NODES; 0: neither.
        given_hosts: where HOSTS is assigned, or empty.
        where: names conf.py in messages.

    Raises:
        ConfError: it is not said how many, or it is said twice, or there is no image.
    """
    if given_hosts:
        raise ConfError(
            given_hosts,
            "HOSTS names machines, and --engine=kubernetes has pods, as many as --nnodes=N or K8S_NODES says; "
            "take HOSTS out, or give another file with --conf=FILE",
        )
    if not count:
        raise ConfError(where, "number of pods unknown: give --nnodes=N, or K8S_NODES in conf.py")
    if not image:
        raise ConfError(
            where,
            "K8S_IMAGE is missing; expected an image with python3, numpy and pyzmq in it, for example "
            "K8S_IMAGE = 'registry.example.org/paddle:1'",
        )
    return tuple(parse_host(f"pod-{index}") for index in range(count))
