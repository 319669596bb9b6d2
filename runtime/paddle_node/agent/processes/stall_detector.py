# SPDX-License-Identifier: Apache-2.0
"""Decides whether a process makes progress. Pure: the clock and the facts from /proc are arguments.

A process is frozen if it is stopped, stuck in the kernel, or no longer sends the heartbeats that it had begun to send.
It is hung if it has reported steps, but none for too long. While a debugger traces a process, the timers are paused.
"""

from __future__ import annotations

from typing import Optional

from paddle_node.contract.classes import NamedTuple

STOPPED_S = 3.0  # a stop that is quickly undone does not count
KERNEL_S = 10.0  # a busy disk can block a process in the kernel for a while

FROZEN = "frozen"
NO_STEP = "no step"


class Limits(NamedTuple):
    """The time limits in seconds without a heartbeat and without a step; 0 disables a limit."""

    heartbeat_s: float
    step_s: float


class Stall(NamedTuple):
    """Why a process makes no progress: FROZEN or NO_STEP, and a phrase for messages."""

    kind: str
    what: str


class StallDetector:
    """Decides from heartbeats, steps and the process state whether one process makes progress. Pure.

    Args:
        now: monotonic time in seconds, as in all methods.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._alive_at: Optional[float] = None
        self._step_at: Optional[float] = None
        self._state = ""
        self._state_since = now

    def beat(self, now: float) -> None:
        """Record that a heartbeat arrived."""
        self._alive_at = now

    def step(self, now: float) -> None:
        """Record a step, which also counts as a heartbeat if the process has ever sent one."""
        self._step_at = now
        if self._alive_at is not None:
            self._alive_at = now

    def extend_deadlines(self, late_s: float) -> None:
        """Extend all deadlines by the time for which the whole node was suspended."""
        self._state_since += late_s
        self._alive_at = None if self._alive_at is None else self._alive_at + late_s
        self._step_at = None if self._step_at is None else self._step_at + late_s

    def judge(self, now: float, state: str, traced: bool) -> Optional[Stall]:
        """Return why the process makes no progress, or None.

        Args:
            state: the letter of its state in /proc/<pid>/stat.
            traced: whether a debugger is attached.
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
            return Stall(FROZEN, "no heartbeat for %.0f s" % quiet_s)
        stepless_s = _since(self._step_at, now)
        if 0 < self._limits.step_s <= stepless_s:
            return Stall(NO_STEP, "no step for %.0f s" % stepless_s)
        return None


def _since(then: Optional[float], now: float) -> float:
    return 0.0 if then is None else now - then
