# SPDX-License-Identifier: Apache-2.0
"""Decides whether a process still makes progress; pure: the clock and the facts of /proc are arguments.

Frozen: stopped, stuck in the kernel, or silent although it had begun to send signs of life. Hung: it told of steps,
and then of none for too long. A traced process is somebody's debugging session: its clocks stand still.
"""

from __future__ import annotations

from typing import Optional

from paddle_node.contract.classes import NamedTuple

STOPPED_S = 3.0  # a stop that somebody takes back at once is none
KERNEL_S = 10.0  # a busy disk holds a process in the kernel for a while

FROZEN = "frozen"
NO_STEP = "no step"


class Limits(NamedTuple):
    """Seconds without a sign of life, and without a step; 0 means never."""

    heartbeat_s: float
    step_s: float


class Stall(NamedTuple):
    """Why a process does not get on: FROZEN or NO_STEP, and a phrase for people."""

    kind: str
    what: str


class StallDetector:
    """What is known of one process's life.

    Args:
        now: monotonic seconds, as everywhere here.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._alive_at: Optional[float] = None
        self._step_at: Optional[float] = None
        self._state = ""
        self._state_since = now

    def beat(self, now: float) -> None:
        """It sent a sign of life."""
        self._alive_at = now

    def step(self, now: float) -> None:
        """It told of progress, which is a sign of life too if it ever sent one."""
        self._step_at = now
        if self._alive_at is not None:
            self._alive_at = now

    def forgive(self, late_s: float) -> None:
        """Excuse all processes for a time in which the whole node was suspended."""
        self._state_since += late_s
        self._alive_at = None if self._alive_at is None else self._alive_at + late_s
        self._step_at = None if self._step_at is None else self._step_at + late_s

    def judge(self, now: float, state: str, traced: bool) -> Optional[Stall]:
        """Why it does not get on, or None.

        Args:
            state: its letter in /proc/<pid>/stat.
            traced: a debugger holds it.
        """
        if traced:
            self._alive_at = None if self._alive_at is None else now
            self._step_at = None if self._step_at is None else now
            state = ""
        if state != self._state:
            self._state, self._state_since = state, now
        in_state_s = now - self._state_since
        if state == "T" and in_state_s >= STOPPED_S:
            return Stall(FROZEN, "stopped by a signal (state T) for %.0f s" % in_state_s)
        if state == "D" and in_state_s >= KERNEL_S:
            return Stall(FROZEN, "stuck in the kernel (state D) for %.0f s" % in_state_s)
        quiet_s = _since(self._alive_at, now)
        if 0 < self._limits.heartbeat_s <= quiet_s:
            return Stall(FROZEN, "no sign of life for %.0f s" % quiet_s)
        stepless_s = _since(self._step_at, now)
        if 0 < self._limits.step_s <= stepless_s:
            return Stall(NO_STEP, "no step for %.0f s" % stepless_s)
        return None


def _since(then: Optional[float], now: float) -> float:
    return 0.0 if then is None else now - then
