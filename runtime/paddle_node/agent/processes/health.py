# SPDX-License-Identifier: Apache-2.0
"""Looks after the processes about once a second: tells of those that stall, with their stacks, and that recover."""

from __future__ import annotations

import time
from typing import Callable, Dict, Set

from paddle_node.agent.link.loop import Loop
from paddle_node.agent.link.outbox import Outbox
from paddle_node.agent.processes.memory_kills import MemoryKills
from paddle_node.agent.processes.stacks import Stacks, is_traced
from paddle_node.agent.processes.stall_detector import Stall, StallDetector
from paddle_node.agent.processes.tapped_log import TappedLog
from paddle_node.linux import process_tree

LOOK_S = 1.0
LATE_S = 1.0  # a look that is later than this: the machine stood still, or somebody stopped us


class Patient:
    """One process as it is looked after."""

    def __init__(self, pid: int, log: TappedLog, detector: StallDetector) -> None:
        self.pid = pid
        self.log = log
        self.detector = detector


class Health:
    """Looks after all patients that `patients` names at that moment."""

    def __init__(self, loop: Loop, outbox: Outbox, patients: Callable[[], Dict[str, Patient]]) -> None:
        self._loop = loop
        self._outbox = outbox
        self._patients = patients
        self._stalled: Set[str] = set()
        self._told: Set[str] = set()
        self._due = time.monotonic()
        self._begun = False
        self.kills = MemoryKills()

    def begin(self) -> None:
        """Look from now on; a second call changes nothing."""
        if not self._begun:
            self._begun = True
            self._due = time.monotonic() + LOOK_S
            self._loop.after(LOOK_S, self._look)

    def ask_stacks(self, name: str) -> None:
        """Send `stacks` of one process, once they are known."""
        patient = self._patients()[name]

        def told(text: str) -> None:
            self._outbox.send("stacks", proc=name, stacks=text)

        Stacks(self._loop, patient.pid, patient.log, told)

    def forget(self, name: str) -> None:
        """It ended."""
        self._stalled.discard(name)
        self._told.discard(name)

    def _look(self) -> None:
        now = time.monotonic()
        late_s = now - self._due
        self.kills.sample()
        for name, patient in self._patients().items():
            if late_s > LATE_S:
                patient.detector.forgive(late_s)
            self._judge(name, patient, now)
        self._due = now + LOOK_S
        self._loop.after(LOOK_S, self._look)

    def _judge(self, name: str, patient: Patient, now: float) -> None:
        found = process_tree.look(patient.pid)
        if found is None:
            return
        stall = patient.detector.judge(now, found.state, is_traced(patient.pid))
        if stall is not None and name not in self._stalled:
            self._stalled.add(name)
            self._tell(name, patient, stall)
        elif stall is None and name in self._stalled:
            self._stalled.discard(name)
            if name in self._told:
                self._told.discard(name)
                self._outbox.send("recovered", proc=name)

    def _tell(self, name: str, patient: Patient, stall: Stall) -> None:
        def asked(text: str) -> None:
            if name in self._stalled:  # else it goes on already
                self._told.add(name)
                self._outbox.send("stalled", proc=name, cause=stall.kind, what=stall.what, stacks=text)

        Stacks(self._loop, patient.pid, patient.log, asked)
