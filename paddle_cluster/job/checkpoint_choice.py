# SPDX-License-Identifier: Apache-2.0
"""The phase in which nodes verify the checkpoint that a job resumes from; it changes nothing on the nodes.

All nodes read the newest complete checkpoint in parallel. If a checksum differs, the next older one is tried. Servers
resume from a checkpoint that is intact on all nodes; without one, the job ends with the reasons.
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
from paddle_cluster.text.sizes import size_text
from paddle_node.contract.probed import Part

PROGRESS_S = 5.0  # seconds until the first report; the interval then doubles
RAREST_S = 60.0


def choose(
    job: plan.Plan, roster: Roster, loop: Loop, console: Console, enter: Callable[[str], None]
) -> None:
    """Verify checkpoints until one is intact on all pserver nodes, and report those that are skipped.

    Args:
        enter: called with the name of the phase, if there is something to verify.

    Raises:
        PreflightError: no checkpoint is intact; starting from scratch would discard the training progress.
    """
    nodes = job.pserver_nodes
    found = {
        node_id: answer.parts
        for node_id in nodes
        if (answer := roster.nodes[node_id].reports.answer) is not None
    }
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
    told = plan.aligned(job, machines.Machines(parts=found)).told
    if best is None and (is_damaged or checkpoints.unreadable(found, nodes)):
        raise PreflightError(f"{told}. No server was started, because it would train from scratch")
    if told:
        console.note(told)


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
        raise PreflightError(f"{first.name}: lost: {first.contact.error or 'its connection ended'}")
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
