# SPDX-License-Identifier: Apache-2.0
"""What every handler of a job may use, and whether the job is being stopped. Belongs to the loop's thread."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from typing import Any

from launcher.config.settings import Settings
from launcher.files.collector_thread import CollectorThread
from launcher.files.payload import Payload
from launcher.nodes.connector import Connector
from launcher.nodes.node_record import NodeRecord
from launcher.nodes.phases import PhaseClock
from launcher.nodes.roster import Roster
from launcher.plan.plan import Plan
from launcher.screen.console import Console
from launcher.screen.job_log import JobLog
from launcher.system.signals import SignalEvent


@dataclass
class JobContext:
    """One job as its handlers see it.

    Attributes:
        events: the queue of the loop; links post to it.
        job_log: for what the screen need not say.
        stopping: the job is being stopped: processes end because we end them.
        asked_again: a request to stop that came while everything is being stopped, or None.
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
        """The settings of the plan."""
        return self.plan.settings

    @property
    def forced(self) -> bool:
        """Whether the user no longer wants to wait."""
        return self.asked_again is not None

    def node_state(self, record: NodeRecord, state: str) -> None:
        """Show what a node does now."""
        self.console.node_state(record.node.node_id, state)
