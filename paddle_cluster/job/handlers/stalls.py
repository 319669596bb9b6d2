# SPDX-License-Identifier: Apache-2.0
"""What the job does when a process lives and does not get on, and when it goes on after all."""

from __future__ import annotations

from paddle_cluster.connection.link import MessageEvent
from paddle_cluster.job.context import JobContext
from paddle_cluster.job.remarks import Remarks
from paddle_cluster.nodes.failure import FailureKind
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.process_record import Stage
from paddle_cluster.text.fields import line, lines

_STACK_LINES = 5000
NO_STEP = "no step"


class StallHandlers:
    """Frozen and hung processes."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._roster = context.roster
        self._remarks = Remarks(context.console, context.settings.limits.lease_s)

    def stalled(self, record: NodeRecord, event: MessageEvent) -> None:
        """Tell it; a trainer without a step has had its time already, a frozen process gets a lease."""
        fields = event.fields
        process = self._roster.process(record, fields["proc"])
        what, stacks = line(fields.get("what"), "what"), _stacks(event)
        if process is None or process.stage is Stage.ENDING or self._context.stopping:
            return
        process.note_stacks(stacks)
        name = self._roster.failure_of(process, what, FailureKind.STALLED).name()
        if line(fields.get("cause"), "cause") == NO_STEP:
            self._roster.fail_process(process, f"hung: {what}", FailureKind.HUNG, stacks=stacks)
            return
        process.freeze(what)
        lease_s = self._context.settings.limits.lease_s
        self._remarks.show(record, f"{name} is frozen: {what}; given up in {lease_s:g} s")
        self._context.node_state(record, "frozen")

    def recovered(self, record: NodeRecord, event: MessageEvent) -> None:
        """It goes on."""
        process = self._roster.process(record, event.fields["proc"])
        if process is None or process.stall is None:
            return
        process.move(Stage.RUNNING)
        name = self._roster.failure_of(process, "", FailureKind.STALLED).name()
        self._remarks.show(record, f"{name} goes on")
        self._context.node_state(record, "running")

    def stacks(self, record: NodeRecord, event: MessageEvent) -> None:
        """Where a process is, as somebody asked; its log has it too."""
        process = self._roster.process(record, event.fields["proc"])
        if process is not None:
            process.note_stacks(_stacks(event))


def _stacks(event: MessageEvent) -> str:
    return "\n".join(lines(event.fields.get("stacks"), "stacks", _STACK_LINES))
