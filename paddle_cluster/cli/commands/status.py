# SPDX-License-Identifier: Apache-2.0
"""`paddle.py status [JOB] [options]`: shows the jobs of this user, or one of them in detail."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from paddle_cluster.cli import cluster_of, command_arguments
from paddle_cluster.cli.command_arguments import CommandArguments
from paddle_cluster.control import node_jobs, node_queue, status_text, store
from paddle_cluster.control.store import KnownJob
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.screen.writer import answer, show
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.state_dir import StatePlaces, places
from paddle_node.contract.classes import asdict

USAGE = f"""\
{PROGRAM} status [JOB] [--all] [--json]
{PROGRAM} status --nodes [JOB] [--conf=FILE] [--hosts=HOST[,HOST]]
               [--hostfile=FILE] [--json]

Lists your jobs on this machine, newest first. With JOB (a name, an id,
or the beginning or end of one): its nodes, processes and failures.

  --all         show every node and process, however many
  --json        print JSON
  --nodes       query the nodes of conf.py, or those of JOB, for the jobs they
                know and for waiting resident agents (RESIDENT_S)
  --conf=FILE   use the nodes of this conf.py; --hosts, --hostfile: use
                these nodes

Exit status: 0, or 5 when a node could not be queried.
"""
SHOWN = 30


def run(argv: Sequence[str]) -> ExitCode:
    """Print all jobs of this user, or one job in detail; return 0, or 5 if a node did not answer.

    Raises:
        UsageError: an argument is invalid, or no job matches.
    """
    given = command_arguments.read("status", argv, USAGE)
    where = places(os.environ)
    if "--nodes" in given.switches:
        return _ask_nodes(where, given)
    if given.job is not None:
        job = store.find(where, given.job)
        if "--json" in given.switches:
            answer(json.dumps(status_text.as_json(job), indent=1))
        else:
            lines = status_text.detail(job, time.time(), everything="--all" in given.switches)
            if node_queue.is_waiting(job):
                ahead = node_queue.titles(node_queue.before(store.all_jobs(where), job))
                lines.insert(
                    1,
                    f"  waiting for: {ahead or 'no job, it is about to start'}; priority {job.record.priority}",
                )
            answer("\n".join(lines))
        return ExitCode.DONE
    jobs = store.all_jobs(where)
    if "--json" in given.switches:
        answer(json.dumps([status_text.as_json(job) for job in jobs], indent=1))
    else:
        _show_all(jobs, where)
    return ExitCode.DONE


def _show_all(jobs: list[KnownJob], where: StatePlaces) -> None:
    if not jobs:
        answer(f"{where.jobs} has no jobs; `{PROGRAM} status --nodes` queries the nodes of conf.py")
        _print_unreadable(where)
        return
    lines = status_text.job_table(jobs, time.time(), SHOWN)
    if len(jobs) > SHOWN:
        lines.append(f"  and {len(jobs) - SHOWN} older jobs")
    answer("\n".join(lines))
    _print_unreadable(where)


def _print_unreadable(where: StatePlaces) -> None:
    """Report skipped jobs on standard error, to keep standard output parsable."""
    for problem in store.unreadable(where)[:SHOWN]:
        show(f"{PROGRAM}: {problem}", sys.stderr)


def _ask_nodes(where: StatePlaces, given: CommandArguments) -> ExitCode:
    nodes, login, conf, job_id = cluster_of.nodes_to_ask(where, given, os.environ)
    known = node_jobs.ask(nodes, login)
    jobs, residents, failed = known
    if job_id is not None:
        jobs = [job for job in jobs if job.job_id.startswith(job_id) or job.job_id.endswith(job_id)]
        if not jobs and not failed:
            raise UsageError(f"no node has a record of job {job_id!r}")
    node_jobs.rebuild(where, jobs, login, conf)
    if "--json" in given.switches:
        facts: dict[str, Any] = {
            "jobs": [asdict(job) for job in jobs],
            "residents": [asdict(resident) for resident in residents],
            "failed": {one.node.name: one.error for one in failed},
        }
        answer(json.dumps(facts, indent=1))
    else:
        answer("\n".join(status_text.on_nodes(known._replace(jobs=jobs), time.time())))
    return ExitCode.LOST if failed else ExitCode.DONE
