# SPDX-License-Identifier: Apache-2.0
"""Which engine a job has, made from its settings."""

from __future__ import annotations

from launcher.config.options import EngineKind
from launcher.config.settings import Settings
from launcher.engines import openmpi, slurm
from launcher.engines.engine import Engine
from launcher.errors import UsageError


def engine_of(settings: Settings) -> Engine:
    """The engine of a job that is not started over SSH.

    Raises:
        UsageError: a host has a form that the engine does not know.
    """
    cluster = settings.cluster
    for host in cluster.hosts:
        if host.is_local or host.port is not None:
            kind = "an embedded node" if host.is_local else "a host with a port"
            raise UsageError(
                f"{host.text!r} is {kind}, which --engine={cluster.engine} cannot start anything on; "
                "expected host names (a port belongs into ~/.ssh/config)"
            )
    names = [host.name for host in cluster.hosts]
    if cluster.engine is EngineKind.OPENMPI:
        tool = openmpi.tool([host.describe() for host in cluster.hosts])
    else:
        tool = slurm.tool(names)
    return Engine(
        tool,
        names,
        patience_s=settings.limits.lease_s,
        again_s=settings.ssh.connect_timeout_s,
        python=cluster.python or "python3",
    )
