# SPDX-License-Identifier: Apache-2.0
"""What the job's loop knows of one process: its stage, which moves by a table, and its facts. Only the loop's thread
changes a record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from paddle_cluster.plan.environment import Endpoints
from paddle_cluster.plan.plan import Process
from paddle_cluster.record import dataclass
from paddle_node.contract.facts import MAX_CURVES, Metrics, ProcessFacts, Progress


class ProcessState(Enum):
    """The state of a process as status.json has it."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"


class Stage(Enum):
    """A stage in the life of a process.

    FROZEN: it is alive but makes no progress. ENDING: the launcher ends it, to restart it or to continue without it.
    DONE: it succeeded and will not be restarted.
    """

    STARTING = "starting"
    RUNNING = "running"
    FROZEN = "frozen"
    ENDING = "ending"
    EXITED = "exited"
    DONE = "done"


MOVES: Mapping[Stage, tuple[Stage, ...]] = {
    Stage.STARTING: (Stage.RUNNING, Stage.ENDING, Stage.EXITED),
    Stage.RUNNING: (Stage.FROZEN, Stage.ENDING, Stage.EXITED),
    Stage.FROZEN: (Stage.FROZEN, Stage.RUNNING, Stage.ENDING, Stage.EXITED),
    Stage.ENDING: (Stage.EXITED,),
    Stage.EXITED: (Stage.DONE,),
    Stage.DONE: (),
}
"""Stage -> the stages that may follow it. A restarted process has a new record."""

_STATES = {
    Stage.STARTING: ProcessState.STARTING,
    Stage.EXITED: ProcessState.EXITED,
    Stage.DONE: ProcessState.EXITED,
}


@dataclass(frozen=True)
class Stall:
    """A process that is alive but makes no progress.

    Attributes:
        what: for people: "stopped by a signal (state T) for 3 s".
        since: monotonic time.
    """

    what: str
    stacks: str
    since: float


@dataclass
class ProcessRecord:
    """One requested process.

    Attributes:
        restarts: how often it was restarted.
        endpoints: what a pserver reported when it answered on all its ports.
        stall: why it makes no progress; only while FROZEN.
        stacks: its stacks when last requested.
        facts: what it has reported, and what its agent has measured.
        stepped_at: monotonic time of its last step; 0 before it.
        left_at: when it exited with code 0, in seconds since 1970; 0 before that.
        last_lines: the end of its log at that time.
    """

    process: Process
    restarts: int = 0
    endpoints: Endpoints | None = None
    stage: Stage = Stage.STARTING
    stall: Stall | None = None
    stacks: str = ""
    facts: ProcessFacts = field(default_factory=ProcessFacts)
    stepped_at: float = 0.0
    left_at: float = 0.0
    last_lines: tuple[str, ...] = ()

    @property
    def state(self) -> ProcessState:
        """Its state for people: one that is frozen or being ended runs."""
        return _STATES.get(self.stage, ProcessState.RUNNING)

    @property
    def spoke(self) -> bool:
        """Whether it has written a line."""
        return self.facts.life.last_line is not None

    @property
    def has_samples(self) -> bool:
        """False for a trainer whose passes have had no samples."""
        return self.facts.progress is None or self.facts.progress.samples_per_s != 0

    def move(self, stage: Stage, stall: Stall | None = None) -> bool:
        """Enter a stage; False, and nothing changes, where the table does not allow it, as for late news."""
        if stage not in MOVES[self.stage]:
            return False
        self.stage, self.stall = stage, stall
        if stage is Stage.EXITED:
            self.learn(usage=None, queue=None)
        return True

    def freeze(self, what: str) -> bool:
        """Record that it makes no progress from now on."""
        return self.move(Stage.FROZEN, Stall(what, self.stacks, time.monotonic()))

    def learn(self, **parts: Any) -> None:
        """Replace parts of its facts, by the names of ProcessFacts."""
        self.facts = self.facts._replace(**parts)

    def live(self, **known: Any) -> None:
        """Replace fields of its life, by the names of Life."""
        self.learn(life=self.facts.life._replace(**known))

    def answer_at(self, endpoints: Endpoints) -> None:
        """Record that it answers on all its ports."""
        self.endpoints = endpoints

    def step(self, progress: Progress) -> None:
        """Record a step, or a pass without steps."""
        self.stepped_at = time.monotonic()
        self.learn(progress=progress)

    def note_points(self, values: Mapping[str, float]) -> None:
        """Record the newest values of curves, by title; new titles beyond MAX_CURVES are left out."""
        known = {} if self.facts.metrics is None else self.facts.metrics.metrics
        found = {**known, **values}
        self.learn(metrics=Metrics(dict(list(found.items())[:MAX_CURVES])))

    def note_stacks(self, stacks: str) -> None:
        """Record its newest stacks."""
        self.stacks = stacks

    def leave(self, last_lines: tuple[str, ...]) -> None:
        """Record that it exited with code 0."""
        self.left_at, self.last_lines = time.time(), last_lines
