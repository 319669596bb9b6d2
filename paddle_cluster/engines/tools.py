# SPDX-License-Identifier: Apache-2.0
"""Command lines of mpirun and srun: one process per host, in the order of the hosts, not pinned."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.options import EngineKind
from paddle_cluster.config.settings import ClusterSettings
from paddle_cluster.engines.addresses import own_addresses, sampled
from paddle_cluster.engines.porters import CODE, GIVEN
from paddle_cluster.engines.slurm_allocation import asked
from paddle_cluster.errors import UsageError

HOSTS = "@hosts"
ANSWER_S = 10.0
_NODE_ADDR = re.compile(r"\bNodeAddr=(\S+)")
_HYDRA = re.compile("HYDRA|Intel")


@dataclass(frozen=True)
class Tool:
    """How one kind of cluster starts a program on each node.

    Attributes:
        name: its name in messages.
        argv: everything before the program's own argv; the variables `GIVEN` and `CODE` must reach the program.
        ranks: variables with the rank of a process, which is the index of its node.
        hosts: content of the file that the word HOSTS in argv stands for.
        routes: addresses of nodes in the cluster, if it does not use their names.
    """

    name: str
    argv: tuple[str, ...]
    ranks: tuple[str, ...]
    hosts: str = ""
    routes: tuple[str, ...] = ()


def tool_of(cluster: ClusterSettings, address: str = "") -> Tool:
    """The tool of a cluster.

    Args:
        address: address of this machine for the nodes; empty: chosen by the routes to them.

    Raises:
        UsageError: a host has a form that the tool does not know.
    """
    for host in cluster.hosts:
        if host.is_local or host.port not in (None, 22):
            kind = "an embedded node" if host.is_local else "a host with a port"
            raise UsageError(
                f"{host.text!r} is {kind}, which --engine={cluster.engine} cannot start anything on; "
                "expected host names (a port belongs into ~/.ssh/config)"
            )
    if cluster.engine is EngineKind.SLURM:
        names = [host.name for host in cluster.hosts]
        return replace(srun(names), routes=node_addresses(names))
    if _HYDRA.search(_version_of_mpirun()):
        return hydra(cluster.hosts, own_addresses([host.name for host in cluster.hosts], address)[0])
    return mpirun([replace(host, port=None).describe() for host in cluster.hosts])


def _version_of_mpirun() -> str:
    try:
        done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=ANSWER_S)
    except (OSError, subprocess.SubprocessError):  # what is wrong with it is told when it is started
        return ""
    return done.stdout


def mpirun(hosts: Sequence[str]) -> Tool:
    """Open MPI, 4 and 5, however many slots a host has.

    Args:
        hosts: `[user@]name`, as mpirun's ssh takes them.
    """
    as_root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
    argv = (
        *("mpirun", *as_root, "--hostfile", HOSTS, "-n", str(len(hosts)), "--map-by", "ppr:1:node"),
        *("--bind-to", "none", "-x", GIVEN, "-x", CODE),
    )
    file = "".join(f"{host} slots=1\n" for host in hosts)
    return Tool("mpirun", argv, ("OMPI_COMM_WORLD_RANK", "PMIX_RANK"), file)


def hydra(hosts: Sequence[Host], here: str) -> Tool:
    """MPICH's mpirun, and what is made of it: Intel MPI, MVAPICH.

    Args:
        here: an address of this machine, which the hosts call.
    """
    argv = (
        *("mpirun", "-rmk", "user", "-launcher", "ssh", "-f", HOSTS, "-n", str(len(hosts)), "-ppn", "1"),
        # hosts have no directory of ours
        *("-localhost", here, "-wdir", "/", "-genvlist", f"{GIVEN},{CODE}"),
    )
    file = "".join(f"{host.name}:1" + (f" user={host.user}" if host.user else "") + "\n" for host in hosts)
    return Tool("mpirun", argv, ("PMI_RANK",), file)


def srun(hosts: Sequence[str]) -> Tool:
    """Slurm inside an allocation; takes no CPU from other steps."""
    count = str(len(hosts))
    argv = (
        *("srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--distribution=block"),
        *(f"--nodelist={','.join(hosts)}", "--overlap", "--cpu-bind=none", "--mem=0", "--mpi=none"),
        *("--unbuffered", "--kill-on-bad-exit=0", "--no-kill", "--quit-on-interrupt", "--job-name=paddle"),
    )
    return Tool("srun", argv, ("SLURM_PROCID",))


def node_addresses(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return Slurm's NodeAddr of some nodes, because node names need not resolve."""
    told = asked("scontrol", "--oneliner", "show", "node", ",".join(sampled(hosts)))
    return tuple(_NODE_ADDR.findall(told))
