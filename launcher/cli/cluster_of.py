# SPDX-License-Identifier: Apache-2.0
"""Which nodes a command asks: those of a job's job.json, or those of conf.py where the job is not known here."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.config import settings
from launcher.config.arguments import Arguments
from launcher.config.command_arguments import Given
from launcher.config.settings import SshSettings
from launcher.control import job_record, known_jobs, node_jobs
from launcher.control.job_record import NodeEntry
from launcher.errors import UsageError
from launcher.system.state_dir import StatePlaces


def nodes_to_ask(
    where: StatePlaces, given: Given, environ: Mapping[str, str]
) -> tuple[tuple[NodeEntry, ...], SshSettings, str, str | None]:
    """Nodes, how to log in, the conf.py that names them, and the job id (or a part of it) when one was given.

    Raises:
        UsageError: the part of an id is that of several jobs.
        ConfError: conf.py is wrong.
    """
    if given.job is not None and not {"--conf", "--hosts", "--hostfile"} & set(given.values):
        try:
            job = known_jobs.find(where, given.job)
        except UsageError:
            if any(given.job in one.job_id for one in known_jobs.all_jobs(where)):
                raise
        else:
            return job.record.nodes, job.record.login, job.record.conf, job.job_id
    hosts = given.values.get("--hosts")
    hostfile = given.values.get("--hostfile")
    if hosts and hostfile:
        raise UsageError("--hosts and --hostfile each say which hosts there are; give one of them")
    arguments = Arguments(
        conf=given.values.get("--conf"), hosts=tuple(hosts.split(",")) if hosts else None, hostfile=hostfile
    )
    resolved = settings.resolve(arguments, environ)
    return node_jobs.nodes_of(resolved), job_record.login_of(resolved), str(resolved.conf), given.job
