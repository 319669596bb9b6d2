# SPDX-License-Identifier: Apache-2.0
"""Handles requests to stop the job, and nodes' reports that they have stopped."""

from __future__ import annotations

from paddle_cluster.connection.link import LinkLost
from paddle_cluster.errors import LauncherError
from paddle_cluster.job.context import JobContext
from paddle_cluster.nodes.failure import FailureKind
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.system.signals import SignalEvent, ThreadFailed
from paddle_cluster.text.wrapping import visible
from paddle_node.contract import to_launcher


class Stopped(Exception):
    """Raised when the user asked the job to stop, to end the current phase."""

    def __init__(self, event: SignalEvent) -> None:
        super().__init__(event.name)
        self.event = event


class StopHandlers:
    """Handles requests to stop the job, and the nodes' reports afterwards."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def signal(self, event: SignalEvent) -> None:
        """Handle a request to stop: the first one ends the phase, the second one kills all processes immediately.

        Raises:
            Stopped: at the first request.
        """
        context = self._context
        if not context.stopping:
            raise Stopped(event)
        context.asked_again = context.asked_again or event
        for record in context.roster.live():
            record.send("stop", procs=None, grace_s=0.0)

    def thread_failed(self, event: ThreadFailed) -> None:
        """Fail the job, because a thread of the launcher has died.

        Raises:
            LauncherError: always.
        """
        raise LauncherError(visible(f"the launcher's thread {event.name!r} failed: {event.what}"))

    def stopped(self, record: NodeRecord, stopped: to_launcher.Stopped) -> None:
        """Handle a node's report that the requested processes have ended, except those that it lists."""
        if stopped.procs is not None:
            record.traces.parted()
            for pid, command in stopped.left:
                self._context.roster.fail_node(
                    record, f"cannot kill pid {pid} {command}", FailureKind.REFUSED
                )
            return
        record.traces.stop(stopped.left, stopped.unsure)
        self._context.node_state(record, "stopped")

    def goodbye(self, record: NodeRecord, goodbye: to_launcher.Goodbye) -> None:
        """Handle the agent's last frame; if it arrives during a job, the node is considered lost."""
        if not self._context.stopping:
            lost = LinkLost(record.node.node_id, "the node agent exited during the run", record.link)
            self._context.events.put(lost)
            return
        record.traces.leave(goodbye.uncollected, goodbye.has_saved)
        record.drop(None)
