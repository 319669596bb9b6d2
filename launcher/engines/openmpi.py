# SPDX-License-Identifier: Apache-2.0
"""Open MPI's mpirun, 4 and 5: one porter on each host, not bound to a core, however many slots a host has."""

from __future__ import annotations

import os
from collections.abc import Sequence

from launcher.engines.engine import CODE, GIVEN, HOSTS, Tool

COMMAND = "mpirun"
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def tool(hosts: Sequence[str]) -> Tool:
    """How mpirun starts one process on each of some hosts, in their order.

    Args:
        hosts: `[user@]name`, as mpirun's ssh takes them.
    """
    as_root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
    argv = (
        *(COMMAND, *as_root, "--hostfile", HOSTS, "-n", str(len(hosts)), "--map-by", "ppr:1:node"),
        *("--bind-to", "none", "-x", GIVEN, "-x", CODE),
    )
    return Tool(COMMAND, argv, RANKS, "".join(f"{host} slots=1\n" for host in hosts))
