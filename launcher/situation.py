# SPDX-License-Identifier: Apache-2.0
"""What every reaction of a job may use, and whether the job is being stopped. Belongs to the loop's thread."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from typing import Any

from launcher.cargo import Cargo
from launcher.collection import Collection
from launcher.console import Console
from launcher.engines.ssh import SshEngine
from launcher.phases import PhaseClock
from launcher.plan import Plan
from launcher.roster import NodeRecord, Roster
from launcher.settings import Settings
from launcher.signals import SignalEvent


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
