# SPDX-License-Identifier: Apache-2.0
"""Slurm's srun inside an allocation: one porter on each node, which takes no CPU from other steps."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.engines.engine import Tool

COMMAND = "srun"
RANKS = ("SLURM_PROCID",)


def tool(hosts: Sequence[str]) -> Tool:
    """How srun starts one process on each node of its allocation, in the allocation's order."""
    count = str(len(hosts))
    argv = (
        *(COMMAND, f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--distribution=block"),
        *(
            f"--nodelist={','.join(hosts)}",
            "--overlap",
            "--cpu-bind=none",
            "--mem=0",
            "--mpi=none",
            "--unbuffered",
        ),
        *("--kill-on-bad-exit=0", "--no-kill", "--quit-on-interrupt", "--job-name=paddle"),
    )
    return Tool(COMMAND, argv, RANKS)
