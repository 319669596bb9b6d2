# SPDX-License-Identifier: Apache-2.0
"""How many nodes this process can hold connections to: its limit of open files, raised as far as it goes."""

from __future__ import annotations

import resource

from paddle_cluster.errors import UsageError

A_NODE = 3  # a connection, and the two ends of the pipe that wakes whoever reads it; three pipes of a child
OURS = 128  # files of the workspace on their way, collected logs, the terminal, the control socket


def make_room(nodes: int) -> None:
    """Raise the soft limit of open files to the hard one.

    Raises:
        UsageError: even that is too little for so many nodes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    need = A_NODE * nodes + OURS
    if hard != resource.RLIM_INFINITY and hard < need:
        raise UsageError(
            f"{nodes} nodes need {need} open files, and this user may have {hard}: raise the hard limit "
            f"(`ulimit -Hn`, LimitNOFILE of a service, nofile in /etc/security/limits.conf)"
        )
