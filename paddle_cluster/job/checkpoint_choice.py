# SPDX-License-Identifier: Apache-2.0
"""The phase in which nodes verify the checkpoint that a job resumes from. Changes nothing on the nodes.

All nodes read the newest complete checkpoint in parallel. If a checksum differs, the next older one is tried. Servers
resume from a checkpoint that is intact on all nodes; without one, the job ends with the reasons. A checkpoint that
`--resume` names is verified in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from paddle_cluster.errors import PreflightError
from paddle_cluster.nodes.loop import Loop
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan import checkpoints, machines, plan
from paddle_cluster.plan.checkpoints import Checkpoint
from paddle_cluster.screen.console import Console
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.sizes import size_text
from paddle_node.contract.probed import MOST_VERSIONS, Part

PROGRESS_S = 5.0  # seconds until the first report; the interval then doubles
RAREST_S = 60.0

_NONE = (
    "--resume={resume}: no {what} in {folder} on any node. To start from scratch, omit --resume, and choose "
    "a --checkpoint_period of fewer batches than the job trains. `{program} checkpoints --checkpoint_dir={folder}` "
    "lists the checkpoints in a directory"
)


def choose(
    job: plan.Plan, roster: Roster, loop: Loop, console: Console, enter: Callable[[str], None]
) -> None:
    """Verify checkpoints until one is intact on all pserver nodes, and report the skipped ones.

    Args:
        enter: called with the name of the phase, if there is something to verify.

    Raises:
        PreflightError: none exists, or none is intact and starting from scratch would discard the training progress.
    """
    nodes = job.pserver_nodes
    if not nodes or (folder := checkpoints.resumed_from(job.settings, job.node(nodes[0]).job_dir)) is None:
        return
    resume = dict(job.settings.job.flags)["resume"]
    listed = {
        node_id: answer.facts.checkpoints
        for node_id in nodes
        if (answer := roster.nodes[node_id].reports.answer) is not None
    }
    if resume not in ("latest", "auto") and any(map(_is_cut, listed.values())):
        return  # it may be older than the listed ones; the servers search for it
    found = {node_id: checkpoints.selected(resume, parts) for node_id, parts in listed.items()}
    if resume != "auto" and not any(found.values()):
        what = "checkpoint" if resume == "latest" else "such checkpoint"
        raise PreflightError(_NONE.format(resume=resume, what=what, folder=folder, program=PROGRAM))
    is_damaged = False
    best = checkpoints.newest_whole(checkpoints.together(found, nodes))
    if best is not None:
        enter("checkpoint")
    while best is not None and (problems := _verify(best, job, roster, loop, console)):
        is_damaged = True
        found = checkpoints.marked(found, problems)
        best = checkpoints.newest_whole(checkpoints.together(found, nodes))
    for node_id, parts in found.items():
        roster.nodes[node_id].reports.take_parts(parts)
    message = plan.aligned(job, machines.Machines(parts=found)).message
    if best is None and (is_damaged or checkpoints.unreadable(found, nodes)):
        raise PreflightError(f"{message}. No server was started, because the job would train from scratch")
    if message:
        console.note(message)


def _is_cut(parts: tuple[Part, ...]) -> bool:
    """Return whether a node may have more checkpoints than it listed."""
    return len({part[:2] for part in parts}) >= MOST_VERSIONS


def _verify(
    one: Checkpoint, job: plan.Plan, roster: Roster, loop: Loop, console: Console
) -> list[tuple[int, Part, str]]:
    """Have the nodes read a checkpoint; return (node, part, problem) for each damaged part.

    Raises:
        PreflightError: a node was lost.
    """
    parts = checkpoints.shares(one)
    records = [roster.nodes[node_id] for node_id in parts]
    for record in records:
        record.reports.verification_requested()
        record.send(
            "verify",
            folder=checkpoints.resumed_from(job.settings, record.node.job_dir),
            parts=[part.path for part in parts[record.node.node_id]],
        )
    progress = _Progress(f"verifying the checkpoint of batch {one.first.version}", console)

    def is_over() -> bool:
        progress.show([record.reports.reading for record in records])
        return all(record.reports.damaged is not None or record.link is None for record in records)

    loop.until(is_over)
    lost = [record for record in records if record.reports.damaged is None]
    if lost:
        first = lost[0]
        raise PreflightError(f"{first.name}: lost: {first.contact.error or 'the connection ended'}")
    return [
        (record.node.node_id, part, said[part.path])
        for record in records
        for said in [dict(record.reports.damaged or ())]
        for part in parts[record.node.node_id]
        if part.path in said
    ]


class _Progress:
    """Reports the progress of a long verification."""

    def __init__(self, what: str, console: Console) -> None:
        self._what, self._console = what, console
        self._noted_at, self._wait_s = time.monotonic(), PROGRESS_S

    def show(self, reading: list[tuple[int, int]]) -> None:
        """Report the bytes read and the total of all nodes, at growing intervals."""
        if time.monotonic() - self._noted_at >= self._wait_s:
            self._noted_at, self._wait_s = time.monotonic(), min(RAREST_S, 2 * self._wait_s)
            read, total = (sum(column) for column in zip(*reading, strict=True))
            self._console.note(f"{self._what}: {size_text(read)} of {size_text(total)}")
