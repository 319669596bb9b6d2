# SPDX-License-Identifier: Apache-2.0
"""The state that all handlers of a job share, such as whether it is being stopped; used only by the loop's thread."""

from __future__ import annotations

import queue
from typing import Any

from paddle_cluster.config.settings import Settings
from paddle_cluster.files.collector_thread import CollectorThread
from paddle_cluster.files.payload import Payload
from paddle_cluster.nodes.connector import Connector
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.phases import PhaseClock
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan.plan import Plan
from paddle_cluster.screen.console import Console
from paddle_cluster.screen.job_log import JobLog
from paddle_cluster.system.signals import SignalEvent
from paddle_node.contract.classes import dataclass


@dataclass
class JobContext:
    """The mutable state of a job that its handlers share; used only by the loop's thread.

    Attributes:
        events: the queue of the loop; links post to it.
        job_log: receives messages that need not appear on the screen.
        stopping: whether the job is being stopped, so that the launcher ends its processes.
        asked_again: a request to stop that arrived while the job was already being stopped, or None.
    """

    plan: Plan
    payload: Payload
    roster: Roster
    connector: Connector
    events: queue.SimpleQueue[Any]
    collector: CollectorThread
    console: Console
    clock: PhaseClock
    job_log: JobLog
    stopping: bool = False
    asked_again: SignalEvent | None = None

    @property
    def settings(self) -> Settings:
        """Return the settings of the job."""
        return self.plan.settings

    @property
    def forced(self) -> bool:
        """Return whether the user requested that the job be killed immediately."""
        return self.asked_again is not None

    def node_state(self, record: NodeRecord, state: str) -> None:
        """Set the state that the screen shows for a node."""
        self.console.node_state(record.node.node_id, state)
