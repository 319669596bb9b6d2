# SPDX-License-Identifier: Apache-2.0
"""What every reaction of a job may use, and whether the job is being stopped. Belongs to the loop's thread."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from typing import Any

from launcher.config.settings import Settings
from launcher.files.collector_thread import Collection
from launcher.files.payload import Cargo
from launcher.nodes.phases import PhaseClock
from launcher.nodes.roster import NodeRecord, Roster
from launcher.plan.plan import Plan
from launcher.screen.console import Console
from launcher.ssh.connector import SshEngine
from launcher.system.signals import SignalEvent


@dataclass
class Situation:
    """One job as its reactions see it.

    Attributes:
        events: the queue of the loop; links post to it.
        stopping: the job is being stopped: processes end because we end them.
        asked_again: a request to stop that came while everything is being stopped, or None.
    """

    plan: Plan
    cargo: Cargo
    roster: Roster
    engine: SshEngine
    events: queue.SimpleQueue[Any]
    collector: Collection
    console: Console
    clock: PhaseClock
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
