# SPDX-License-Identifier: Apache-2.0
"""What the job's loop knows of one process, and how that changes: only by these methods, only on the loop's thread."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from paddle_cluster.nodes.reports import ProcessUsage, Pushes, Queue
from paddle_cluster.plan.environment import Endpoints
from paddle_cluster.plan.plan import Process


class ProcessState(Enum):
    """Where a process is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True)
class Stall:
    """A process that lives and does not get on.

    Attributes:
        what: for people: "stopped by a signal (state T) for 3 s".
        since: monotonic time.
    """

    what: str
    stacks: str
    since: float


@dataclass
class ProcessRecord:
    """One requested process: STARTING -> RUNNING -> EXITED. A restart has a new record.

    Attributes:
        endpoints: what a pserver reported when it answered on all its ports.
        restarts: how often it was restarted.
        ending: the launcher ends it, to restart it or to continue without it.
        done: it succeeded and will not be restarted.
        stall: why it makes no progress now, or empty.
        stacks: its stacks when last requested.
        unsaved: checkpoints that a pserver could not write, or empty.
        pushes: push and discard counts of a pserver in asynchronous training, by trainer.
        spoke: it has written a line.
        has_samples: False for a trainer whose passes had no samples so far.
        stepped_at: monotonic time of its last step; 0 before it.
        queue: the trainers that a pserver waits for, as last reported.
        usage: its resource usage as last reported.
        left_at: when it exited with code 0, in seconds since 1970; 0 before that.
        last_lines: the end of its log at that time.
    """

    process: Process
    restarts: int = 0
    endpoints: Endpoints | None = None
    state: ProcessState = ProcessState.STARTING
    ending: bool = False
    done: bool = False
    stall: Stall | None = None
    stacks: str = ""
    unsaved: str = ""
    pushes: Mapping[int, Pushes] = field(default_factory=dict)
    spoke: bool = False
    has_samples: bool = True
    stepped_at: float = 0.0
    queue: Queue | None = None
    usage: ProcessUsage | None = None
    left_at: float = 0.0
    last_lines: tuple[str, ...] = ()

    def start(self) -> None:
        """It is there."""
        self.state, self.unsaved = ProcessState.RUNNING, ""

    def answer_at(self, endpoints: Endpoints) -> None:
        """It answers on all its ports."""
        self.endpoints = endpoints

    def speak(self) -> None:
        """It wrote a line."""
        self.spoke = True

    def step(self, *, has_samples: bool) -> None:
        """Record a step, or a pass without steps."""
        self.stepped_at, self.has_samples = time.monotonic(), has_samples

    def count_pushes(self, pushes: Mapping[int, Pushes]) -> None:
        """It told what became of gradients."""
        self.pushes = pushes

    def note_queue(self, queue: Queue) -> None:
        """Who waits on it for whom."""
        self.queue = queue

    def use(self, usage: ProcessUsage) -> None:
        """It was seen to use that."""
        self.usage = usage

    def note_unsaved(self, what: str) -> None:
        """It could not save what `what` says; empty: it has saved all now."""
        self.unsaved = what

    def note_stacks(self, stacks: str) -> None:
        """It stands there."""
        self.stacks = stacks

    def freeze(self, what: str) -> None:
        """It does not get on from now on."""
        self.stall = Stall(what, self.stacks, time.monotonic())

    def thaw(self) -> None:
        """It goes on; or that it does not is told otherwise."""
        self.stall = None

    def part(self) -> None:
        """We end it: its end is no failure."""
        self.ending, self.stall = True, None

    def exit(self) -> None:
        """It is gone, or will never be there."""
        self.state, self.stall, self.usage, self.queue = ProcessState.EXITED, None, None, None

    def leave(self, last_lines: tuple[str, ...]) -> None:
        """Record that it exited with code 0."""
        self.left_at, self.last_lines = time.time(), last_lines

    def finish(self) -> None:
        """It ended well, and will not be started again."""
        self.done = True
