# SPDX-License-Identifier: Apache-2.0
"""`paddle.py clean [--conf=FILE] [--older_than=TIME] [--dry_run]`: removes the files of finished jobs from nodes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from paddle_cluster.cli import cluster_of, command_arguments
from paddle_cluster.control import node_jobs, store
from paddle_cluster.control.one_question import NodeAnswer
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.screen.writer import show
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.state_dir import places
from paddle_cluster.text.sizes import counted, size_text
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.to_launcher import Cleaned

USAGE = f"""\
{PROGRAM} clean [--older_than=TIME] [--dry_run] [--conf=FILE]
      [--hosts=HOST[,HOST]] [--hostfile=FILE]

Removes the directories of ended jobs from the nodes. Keeps, and lists, those
of running jobs, of jobs that were not collected completely, and of jobs with a
relative --checkpoint_dir. Also removes --bootstrap environments that no job
uses, and stops idle resident agents (RESIDENT_S). Keeps the cache of files that
jobs share.

  --older_than=TIME   only jobs that ended at least this long ago: 90m, 12h, 7d
  --dry_run           print what would be removed; remove nothing
  --conf=FILE         use the nodes of this conf.py; --hosts, --hostfile: use
                      these nodes

Exit status: 0, 5 when a node could not be queried, 7 when something could not
be removed.
"""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def run(argv: Sequence[str]) -> ExitCode:
    """Remove the files of finished jobs from the nodes.

    Returns:
        0 if everything removable was removed, 7 if something remains, 5 if a node could not be queried.

    Raises:
        UsageError: an argument is invalid.
    """
    given = command_arguments.read("clean", argv, USAGE)
    if given.job is not None:
        job = store.find_or_none(places(os.environ), given.job)
        if job is not None and job.is_live:
            raise UsageError(
                f"{job.title} is running: stop it with `{PROGRAM} stop {given.job}`, then run {PROGRAM} clean"
            )
        raise UsageError(
            f"clean does not take a job, got {given.job!r}; it removes the directories of all ended jobs"
            + f"; did you mean --older_than={given.job}?" * (given.job[:-1].isdecimal())
        )
    older_s = _seconds(given.values.get("--older_than", "0s"))
    dry_run = "--dry_run" in given.switches
    nodes, login, _, _ = cluster_of.nodes_to_ask(places(os.environ), given, os.environ)
    answers = node_jobs.clean(nodes, login, older_s, dry_run)
    for one in answers:
        _print_result(one, dry_run)
    if any(one.error for one in answers):
        return ExitCode.LOST
    return (
        ExitCode.NOT_CLEAN
        if any(one.record is None or one.record.stayed for one in answers)
        else ExitCode.DONE
    )


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if not (number.isdecimal() and number.isascii() and unit in _UNITS and len(number) <= 6):
        raise UsageError(f"--older_than={text}: expected a number followed by s, m, h or d, such as 7d")
    return float(int(number) * _UNITS[unit])


def _print_result(one: NodeAnswer[Cleaned], dry_run: bool) -> None:
    cleaned = one.record
    if cleaned is None:
        show(f"! {one.node.name}: could not be queried: {visible(one.error)}")
        return
    total = sum(size for size, _ in cleaned.jobs)
    went = "would be removed" if dry_run else "removed"
    ended = counted(len(cleaned.jobs), "job")
    show(f"{one.node.name}: {ended} {went}, {size_text(total)}")
    if dry_run:
        for size, name in cleaned.jobs:
            show(f"  {name}  {size_text(size)}")
    if cleaned.environments:
        total = sum(size for size, _ in cleaned.environments)
        show(
            f"  {counted(len(cleaned.environments), 'environment')} of --bootstrap {went}, {size_text(total)}"
        )
    for resident in node_jobs.residents(one):
        show(f"  {resident.describe()}, {went}")
    for name, why in cleaned.kept.items():
        show(f"  {name} is not removed: {why}")
    for name in cleaned.stayed:
        show(f"! {name} could not be removed completely; see what remains in {one.node.root_dir}/{name}")
