# SPDX-License-Identifier: Apache-2.0
"""The engine for MPI: mpirun starts one callback agent per host, in the order of the hosts, without CPU pinning."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from paddle_cluster.config.hosts import Host
from paddle_cluster.engines.callback_agents import AGENT_CODE, INVITATION, CallbackAgents, own_addresses
from paddle_cluster.engines.callback_engine import CallbackEngine
from paddle_cluster.engines.tool_process import HOSTS, Tool, ToolProcess, check_hosts
from paddle_node.contract.classes import regex, replace

ANSWER_S = 10.0
_HYDRA = regex("HYDRA|Intel")


class MpiEngine(CallbackEngine):
    """The engine that starts callback agents with the mpirun of Open MPI, or of MPICH and its descendants."""

    def callback_agents(self) -> CallbackAgents:
        """Return the starter that uses the mpirun on PATH. Raises UsageError if it cannot start all nodes."""
        hosts = self._plan.settings.cluster.hosts
        check_hosts("openmpi", hosts)
        return ToolProcess(tool_of(hosts, self._address), self._names)


ENGINE = MpiEngine


def tool_of(hosts: Sequence[Host], address: str = "") -> Tool:
    """Return a description of the mpirun on PATH: its command line, and how it passes hosts and ranks.

    Args:
        address: address of this machine for the nodes; empty: chosen by the routes to them.
    """
    if _HYDRA.search(_version_of_mpirun()):
        return hydra(hosts, own_addresses([host.name for host in hosts], address)[0])
    return mpirun([replace(host, port=None).describe() for host in hosts])


def _version_of_mpirun() -> str:
    try:
        done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=ANSWER_S)
    except (OSError, subprocess.SubprocessError):  # its errors are reported when it is started
        return ""
    return done.stdout


def mpirun(hosts: Sequence[str]) -> Tool:
    """Return the mpirun command for Open MPI 4 and 5, which works with any number of slots per host.

    Args:
        hosts: `[user@]name`, as mpirun passes them to ssh.
    """
    as_root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
    argv = (
        *("mpirun", *as_root, "--hostfile", HOSTS, "-n", str(len(hosts)), "--map-by", "ppr:1:node"),
        *("--bind-to", "none", "-x", INVITATION, "-x", AGENT_CODE),
    )
    file = "".join(f"{host} slots=1\n" for host in hosts)
    return Tool("mpirun", argv, ("OMPI_COMM_WORLD_RANK", "PMIX_RANK"), file)


def hydra(hosts: Sequence[Host], here: str) -> Tool:
    """Return the mpirun command for MPICH and its derivatives, Intel MPI and MVAPICH.

    Args:
        here: an address of this machine to which the hosts connect.
    """
    argv = (
        *("mpirun", "-rmk", "user", "-launcher", "ssh", "-f", HOSTS, "-n", str(len(hosts)), "-ppn", "1"),
        # hosts have no directory of this launcher yet
        *("-localhost", here, "-wdir", "/", "-genvlist", f"{INVITATION},{AGENT_CODE}"),
    )
    file = "".join(f"{host.name}:1" + (f" user={host.user}" if host.user else "") + "\n" for host in hosts)
    return Tool("mpirun", argv, ("PMI_RANK",), file)
