# SPDX-License-Identifier: Apache-2.0
"""Notes about settings that are valid, but have no effect or an unexpected one. Printed when a job starts."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from paddle_cluster.config.arguments import Arguments
from paddle_cluster.config.conf_file import CONF_NAME, CONF_VARIABLE, LIMIT, shown_path
from paddle_cluster.config.hosts import HostList
from paddle_cluster.config.options import Mode
from paddle_cluster.system.installation import CONF_FILE
from paddle_cluster.system.state_dir import read_bounded
from paddle_node.contract.classes import regex

_SEVERAL = regex(r"=.*[, ][A-Z][A-Z0-9_]*=")
_HOME = regex(r"(\w+)=(~|\$HOME|\$\{HOME\})(/\S*|$)")
_HOSTS = regex(rb"(?:^|\n)HOSTS\s*=")
_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
# What a starter sets in each of its tasks; trainers of a job have none of these variables.
_TASKS = (("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), ("mpirun", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE"))


def remarks(
    arguments: Arguments,
    listed: HostList,
    read: Mapping[str, Any],
    conf: Path | None,
    environ: Mapping[str, str],
    variables: Collection[str],
) -> Iterator[str]:
    """Yield a line about each option, file or variable that has no effect, or not the one that it seems to have.

    Args:
        read: the values of conf.py's names.
        conf: the conf.py in use.
        variables: names of the variables that the user gives to processes.
    """
    if listed.is_conf and conf == CONF_FILE and not (arguments["conf"] or environ.get(CONF_VARIABLE)):
        for path in _unused_confs(arguments["job_dispatch_package"]):
            yield f"WARNING: {path} is not used: to use its HOSTS, give --conf={path}"
    if listed.hosts[0].is_local:
        for name in _GPUS:
            if environ.get(name) and name not in variables:
                yield f"{name} of this shell is not passed on to processes: to do so, give --env={name}"
    for starter, rank, size in _TASKS:
        if rank in environ and environ.get(size, "1") != "1":
            yield (
                f"WARNING: {starter} started {environ[size]} tasks, of which this launcher is number {environ[rank]}. "
                f"One launcher starts a job on all nodes: run it without {starter}"
            )
    if read["PADDLE_NIC"] and listed.hosts[0].is_local:
        yield "PADDLE_NIC has no effect on local nodes, which use 127.0.0.0/8"
    if arguments["engine"] != "ssh" and listed.hosts[0].is_local:
        yield (
            f"--engine={arguments['engine']} has no effect on local nodes: all processes run on this machine, because "
            f"{listed.source} names no other host"
        )
    if listed.slots and arguments["nproc_per_node"] is not None:
        yield f"the slots in {listed.source} are ignored because --nproc_per_node is given"
    elif listed.slots and arguments["mode"] is not Mode.COLLECTIVE:
        yield f"the slots in {listed.source} apply only with --mode=collective; in this mode, each host has one trainer"
    if listed.ignored:
        yield f"{listed.source}: ignored: {', '.join(listed.ignored)}"
    folder, period = (arguments.flag(f"checkpoint_{name}") for name in ("dir", "period"))
    if arguments["mode"].has_pserver_command and folder and (period or "0") == "0":
        used = "is only read" if arguments.flag("resume") else "has no effect"
        yield f"--checkpoint_dir {used} without --checkpoint_period=BATCHES: no checkpoint is written"
    if folder and not arguments["mode"].has_pserver_command:
        yield (
            f"--checkpoint_dir has no effect in --mode={arguments['mode']} unless the script reads it: only pservers "
            "of --mode=v2 and v1 write checkpoints"
        )
    elif folder and not folder.startswith(("/", "~")) and arguments["job_dispatch_package"] is not None:
        yield f"--checkpoint_dir={folder} is in this job's directory, so no later job finds it; give an absolute path"
    if any(map(_SEVERAL.search, arguments["env"])):
        yield "--env sets one variable, but its value contains 'NAME=': to set several, give --env=A=1 --env=B=2"
    for name, home, rest in (match.groups() for match in map(_HOME.match, arguments["env"]) if match):
        yield (
            f"WARNING: --env={name}={home}{rest}: the shell did not replace {home}, and the launcher does not: if the "
            f'script does not either, give --env={name}="$HOME{rest}", this machine\'s directory'
        )
    for before, word in itertools.pairwise(("", *arguments.passthrough)):
        is_value = before.startswith("-") and "=" not in before
        if word.startswith("-") and " " in word.partition("=")[0] and not is_value:
            yield f"WARNING: the quotes make {word!r} a single argument: remove them"
    there = arguments["job_workspace"] or ""
    if there and not there.startswith(("/", "~")) and os.path.isdir(there):
        yield f"--job_workspace={there} is below ROOT_DIR on the nodes; to send the local copy, give -p {there}"
    if arguments["queue_priority"] and not arguments["queue"]:
        yield "--queue_priority has no effect without --queue: the job does not wait"


def _unused_confs(package: Path | None) -> Iterator[str]:
    """Yield each conf.py with HOSTS in the workspace, next to it or in the current directory, except the one in use."""
    places = (*((package, package.absolute().parent) if package is not None else ()), Path())
    seen = {CONF_FILE.resolve()}
    for path in (place / CONF_NAME for place in places):
        try:
            if path.resolve() not in seen and _HOSTS.search(read_bounded(path, LIMIT)):
                yield shown_path(path)
        except OSError:  # there is none, or it cannot be read
            continue
        seen.add(path.resolve())
