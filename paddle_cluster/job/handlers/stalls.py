# SPDX-License-Identifier: Apache-2.0
"""What the job does when a process is alive but makes no progress, and when it recovers."""

from __future__ import annotations

from paddle_cluster.job.context import JobContext
from paddle_cluster.job.remarks import Remarks
from paddle_cluster.nodes.failure import FailureKind
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.process_record import Stage
from paddle_cluster.text.wrapping import end_of
from paddle_node.contract.to_launcher import Recovered, Stacks, Stalled

_STACK_LINES = 5000
NO_STEP = "no step"


class StallHandlers:
    """Frozen and hung processes."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._roster = context.roster
        self._remarks = Remarks(context.console, context.settings.limits.lease_s)

    def stalled(self, record: NodeRecord, stalled: Stalled) -> None:
        """Report it: a trainer without a step has had its time already, a frozen process gets a lease."""
        process = self._roster.process(record, stalled.proc)
        what, stacks = stalled.what, _limited(stalled.stacks)
        if process is None or process.stage is Stage.ENDING or self._context.stopping:
            return
        process.note_stacks(stacks)
        name = self._roster.failure_of(process, what, FailureKind.STALLED).name()
        if stalled.cause == NO_STEP:
            self._roster.fail_process(process, f"hung: {what}", FailureKind.HUNG, stacks=stacks)
            return
        process.freeze(what)
        lease_s = self._context.settings.limits.lease_s
        self._remarks.show(record, f"{name} is frozen: {what}; given up in {lease_s:g} s")
        self._context.node_state(record, "frozen")

    def recovered(self, record: NodeRecord, recovered: Recovered) -> None:
        """Report that a frozen process makes progress again."""
        process = self._roster.process(record, recovered.proc)
        if process is None or process.stall is None:
            return
        process.move(Stage.RUNNING)
        name = self._roster.failure_of(process, "", FailureKind.STALLED).name()
        self._remarks.show(record, f"{name} goes on")
        self._context.node_state(record, "running")

    def stacks(self, record: NodeRecord, answer: Stacks) -> None:
        """Take the requested stacks of a process; its log has them too."""
        process = self._roster.process(record, answer.proc)
        if process is not None:
            process.note_stacks(_limited(answer.stacks))


def _limited(stacks: str) -> str:
    return "\n".join(end_of(stacks, _STACK_LINES))
