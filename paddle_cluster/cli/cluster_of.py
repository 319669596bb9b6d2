# SPDX-License-Identifier: Apache-2.0
"""Determines the nodes that a command applies to: from its options, a job's job.json, or conf.py."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from paddle_cluster.cli.command_arguments import CommandArguments
from paddle_cluster.config import arguments
from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.resolve import resolve
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.control import job_record, node_jobs, store
from paddle_cluster.control.job_record import NodeEntry
from paddle_cluster.errors import UsageError
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.state_dir import StatePlaces
from paddle_node.contract.classes import replace
from paddle_node.contract.flags import INIT_FLAGS, PSERVER_FLAGS

_FLAGS = (INIT_FLAGS.keys() | PSERVER_FLAGS.keys()) - {"config"}  # of a trainer; here, --config means --conf
_NODES = {"--conf", "--hosts", "--hostfile"}
_PLACEHOLDER = (
    "--job_workspace=."  # a command line needs one of the two job options; this one is removed afterwards
)


def job_arguments(command: str, argv: Sequence[str]) -> Arguments:
    """Parse the options of a command that queries nodes. The command needs no workspace.

    Raises:
        UsageError: an argument is not one of these options.
    """
    for before, one in itertools.pairwise(("", *argv)):
        if one.split("=")[0] in ("-p", "--job_dispatch_package"):
            raise UsageError(
                f"{command} does not take {one!r}, because it runs no script; omit this option and its directory"
            )
        is_value = before.startswith("-") and "=" not in before
        if one.endswith((".py", ".txt", ".ini", ".yaml")) and not one.startswith("-") and not is_value:
            option = "conf" if one.endswith(".py") else "hostfile"
            raise UsageError(f"{command} does not take {one!r}; did you mean --{option}={one}?")
    has_job = any(one.split("=")[0] in ("-j", "--job_workspace") for one in argv)
    given = arguments.parse(argv if has_job else [*argv, _PLACEHOLDER])
    options = [one for one in given.passthrough if one.startswith("-")]
    unknown = [one for one in options if one[2:].partition("=")[0] not in _FLAGS]
    if unknown or (given.passthrough and not given.flags):
        first = (unknown or given.passthrough)[0]
        hint = f"give hosts as --hosts={first}, or " * (not first.startswith("-"))
        raise UsageError(f"{command} does not take {first!r}; {hint}see `{PROGRAM} {command} --help`")
    kept = {name: value for name, value in given.given.items() if has_job or name != "job_workspace"}
    return replace(given, given=kept)


def nodes_to_ask(
    where: StatePlaces, given: CommandArguments, environ: Mapping[str, str]
) -> tuple[tuple[NodeEntry, ...], SshSettings, str, str | None]:
    """Return the nodes to query, the settings for logins to them, the file or option that names them, and the job ID.

    Raises:
        UsageError: the partial ID matches several jobs.
        ConfError: conf.py is invalid.

    """
    if given.job is not None and not _NODES & set(given.values):
        try:
            job = store.find(where, given.job)
        except UsageError:
            if any(given.job in one.job_id for one in store.all_jobs(where)):
                raise
        else:
            return job.record.nodes, job.record.login.settings(), job.record.conf, job.job_id
    texts = {name[2:]: [text] for name, text in given.values.items() if name in _NODES}
    resolved = resolve(Arguments(arguments.read_options(texts)), environ)
    return (
        node_jobs.nodes_of(resolved),
        job_record.login_of(resolved),
        str(resolved.conf or resolved.sources.hosts),
        given.job,
    )
