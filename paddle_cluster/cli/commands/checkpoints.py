# SPDX-License-Identifier: Apache-2.0
"""`paddle.py checkpoints [JOB] [-p WS] [--checkpoint_dir=DIR] [--json]`: lists a job's checkpoints on its nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from paddle_cluster.cli import cluster_of, command_arguments
from paddle_cluster.cli.command_arguments import CommandArguments
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.control import store
from paddle_cluster.control.job_record import NodeEntry
from paddle_cluster.control.log_lines import LATEST_S
from paddle_cluster.control.one_question import visit
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.nodes.findings import names
from paddle_cluster.plan import checkpoints
from paddle_cluster.plan.checkpoints import Checkpoint
from paddle_cluster.screen.writer import answer, show
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.state_dir import places
from paddle_cluster.text.sizes import counted, size_text
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import dataclass
from paddle_node.contract.probed import Saves
from paddle_node.contract.to_launcher import CheckpointsFound

USAGE = f"""\
{PROGRAM} checkpoints [JOB] [-p WORKSPACE]
      [--job_dispatch_package=WORKSPACE] [--checkpoint_dir=DIR] [--json]
      [--conf=FILE] [--hosts=HOST[,HOST]]

Lists the checkpoints on the nodes of a job: batch, pass, time, size, the nodes
that have them, and the one that --resume=latest would load. JOB is a name,
an id, or the beginning or end of one; default: the newest job.

  -p WORKSPACE          the newest job of this workspace
  --checkpoint_dir=DIR  checkpoints in this directory on the nodes; without
                        JOB, on the nodes of conf.py (--conf, --hosts)
  --json                print JSON

This command verifies sizes only; a job that resumes also verifies checksums.
Exit status: 0, or 5 when a node could not be queried.
"""


LISTING_S = 25.0  # allows for disks in standby


@dataclass(frozen=True)
class NodeCheckpoints:
    """The checkpoints of a job, as its nodes report them.

    Attributes:
        pservers: checkpoints of the pservers, newest first.
        scripts: directory name -> node ID -> the directory's content on the node; most recently changed first.
        not_asked: node name -> why it could not be queried.
        left_out: node name -> the missing parts of its answer.
    """

    pservers: tuple[Checkpoint, ...]
    scripts: dict[str, dict[int, Saves]]
    not_asked: dict[str, str]
    left_out: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return the checkpoints and errors as JSON values, for --json."""
        return {
            "checkpoints": [one.as_json() for one in self.pservers],
            "directories": {
                name: {
                    str(node): {"files": one.files, "nbytes": one.nbytes, "changed_at": one.changed_at}
                    for node, one in by_node.items()
                }
                for name, by_node in self.scripts.items()
            },
            "not_asked": self.not_asked,
            "left_out": self.left_out,
        }


def run(argv: Sequence[str]) -> ExitCode:
    """List the checkpoints and return 0, or 5 if a node could not be queried."""
    given = command_arguments.read("checkpoints", argv, USAGE)
    nodes, login, folder, job_id = _where(given)
    found = _ask(nodes, login, folder)
    if "--json" in given.switches:
        answer(json.dumps({"job": job_id, "checkpoint_dir": folder, **found.as_json()}, indent=1))
    else:
        labels = {node.node_id: node.name for node in nodes}
        answer("\n".join([*_of_pservers(found, folder, job_id, labels), *_of_scripts(found, labels)]))
    for errors, what in ((found.not_asked, "could not be queried: "), (found.left_out, "")):
        for error in dict.fromkeys(errors.values()):
            same = [name for name, one in errors.items() if one == error]
            show(f"! {names(same, len(nodes))}: {what}{error}")
    return ExitCode.LOST if found.not_asked or found.left_out else ExitCode.DONE


def _where(given: CommandArguments) -> tuple[tuple[NodeEntry, ...], SshSettings, str, str]:
    """Return the nodes, the login settings, the pserver checkpoint folder (or ""), and the job (or None).

    Raises:
        UsageError: the job is unknown on this machine.
    """
    where = places(os.environ)
    folder = given.values.get("--checkpoint_dir", "")
    package = given.values.get("-p") or given.values.get("--job_dispatch_package")
    if given.job is None and package is None and (folder or {"--conf", "--hosts"} & set(given.values)):
        nodes, login, _, _ = cluster_of.nodes_to_ask(where, given, os.environ)
        return nodes, login, folder, ""
    if given.job is not None:
        if "/" in given.job or os.path.isdir(given.job):
            raise UsageError(
                f"checkpoints: {given.job} is not a job; for a directory of checkpoints, give "
                f"--checkpoint_dir={given.job}; for a workspace, -p {given.job}"
            )
        job = store.find(where, given.job)
    elif package is not None:
        collected = str(Path(package).absolute())
        mine = [one for one in store.all_jobs(where) if os.path.normpath(one.record.collected) == collected]
        if not mine:
            raise UsageError(
                f"checkpoints: no job of {package} is known on this machine; name the directory on "
                "the nodes with --checkpoint_dir=DIR"
            )
        job = mine[0]
    else:
        job = store.newest(where)
    return job.record.nodes, job.record.login.settings(), folder or job.record.checkpoint_dir, job.job_id


def _of_pservers(found: NodeCheckpoints, folder: str, job_id: str, labels: Mapping[int, str]) -> list[str]:
    of_job = f" (job {job_id})" if job_id else ""
    if not folder:
        return [f"the job{of_job} ran without --checkpoint_dir, so its pservers wrote no checkpoint"]
    where = f"{folder} on {counted(len(labels), 'node')}{of_job}"
    if not found.pservers:
        return [f"no checkpoint in {where}"]
    best = next((one for one in found.pservers if one.is_whole), None)
    lines = [f"checkpoints in {where}", f"  {'batch':>9}  {'pass':>4}  {'written':16}  {'size':>8}  nodes"]
    for one in found.pservers:
        part = one.first
        written = max(p.written_at for parts in one.parts.values() for p in parts)
        lines.append(
            f"{'>' if one is best else ' '} {part.version:>9}  {part.pass_id:>4}  {_moment(written)}  "
            f"{size_text(one.nbytes):>8}  {_completeness(one, labels)}"
        )
        lines += [f"      {problem}" for problem in one.problems[:1]]
    if best is None:
        return [*lines, "no checkpoint is complete: --resume=latest would fail"]
    return [*lines, f"> --resume=latest continues from batch {best.first.version}"]


def _completeness(one: Checkpoint, labels: Mapping[int, str]) -> str:
    if one.is_whole:
        having = one.readable
        return "all" if len(having) == len(one.nodes) > 1 else names([labels[n] for n in having], len(labels))
    if one.without:
        return "not on " + names([labels[node] for node in one.without], len(labels))
    return f"part {one.missing[0]} of {one.first.servers} is missing"


def _of_scripts(found: NodeCheckpoints, labels: Mapping[int, str]) -> list[str]:
    if not found.scripts:
        return []
    lines = [
        "",
        "directories of scripts (PADDLE_CHECKPOINT_DIR)",
        f"  {'changed':16}  {'size':>8}  name, nodes",
    ]
    for name, by_node in found.scripts.items():
        changed = max(one.changed_at for one in by_node.values())
        size = sum(one.nbytes for one in by_node.values())
        lines.append(f"  {_moment(changed)}  {size_text(size):>8}  {name}: {_filled(by_node, labels)}")
    return [*lines, "--keep_as=NAME continues with one of them"]


def _filled(by_node: Mapping[int, Saves], labels: Mapping[int, str]) -> str:
    said = [
        f"{counted(one.files, 'file')} on {labels.get(node, f'node {node}')}"
        for node, one in sorted(by_node.items())
    ]
    return names(said, len(labels))


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(min(seconds, LATEST_S)):%Y-%m-%d %H:%M}"


def _ask(nodes: Sequence[NodeEntry], login: SshSettings, folder: str) -> NodeCheckpoints:
    """List the checkpoints of nodes; block until all have answered or timed out.

    Args:
        folder: the folder of pserver checkpoints, relative to ROOT_DIR or absolute; or empty.
    """
    answers = visit(nodes, login, "checkpoints", CheckpointsFound, LISTING_S, folder=folder)
    wrong = [one for one in answers if one.error]
    not_asked = {one.node.name: visible(one.error) for one in wrong if one.record is None}
    left_out = {one.node.name: visible(one.error) for one in wrong if one.record is not None}
    parts = {one.node.node_id: one.record.parts for one in answers if one.record is not None}
    scripts: dict[str, dict[int, Saves]] = {}
    for one in answers:
        for saved in () if one.record is None else one.record.scripts:
            scripts.setdefault(saved.name, {})[one.node.node_id] = saved
    serving = tuple(node.node_id for node in nodes if any(role.startswith("pserver") for role in node.roles))
    pservers = checkpoints.together(parts, serving or tuple(node.node_id for node in nodes))
    newest = sorted(scripts, key=lambda name: -max(one.changed_at for one in scripts[name].values()))
    return NodeCheckpoints(pservers, {name: scripts[name] for name in newest}, not_asked, left_out)
