# SPDX-License-Identifier: Apache-2.0
"""The tasks of one data set in a pass: which are waiting, leased or finished; see `tasks`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from paddle_node.contract.classes import NamedTuple, dataclass

MOST_FAILURES = 3
MOST_PIECES = 10  # of a task
TASKS_PER_TRAINER = 4  # at least, where there are enough pieces


class Holder(NamedTuple):
    """A client of the queue in one process of a trainer; a new process of the same trainer has a different session."""

    trainer: int
    session: int
    client: int = 0


@dataclass(slots=True)
class Task:
    """A group of pieces that one trainer reads.

    Attributes:
        pieces: (path, byte offset of the chunk) of each piece.
        read: the number of pieces read in this pass.
        epoch: the number of its leases so far; a report about an earlier lease is too late.
        failures: the number of failures in this pass.
    """

    number: int
    pieces: Sequence[tuple[str, int]]
    read: int = 0
    epoch: int = 0
    failures: int = 0


@dataclass(slots=True)
class Lease:
    """A task, the client that reads it, and the time at which the lease expires, by the queue's clock."""

    task: Task
    holder: Holder
    ends_at: float


class Dataset:
    """A data set's tasks, which are waiting, leased or finished in the current pass."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Queue all tasks for pass 0."""
        self.pass_id = 0
        self.waiting = deque(tasks)
        self.leases: dict[int, Lease] = {}
        self.over: list[Task] = []

    def held_by(self, holder: Holder) -> Task | None:
        """Return the task that a trainer's process has leased."""
        return next((each.task for each in self.leases.values() if each.holder == holder), None)

    def lease(self, holder: Holder, ends_at: float) -> Task:
        """Lease the next waiting task to a client, and return the task."""
        task = self.waiting.popleft()
        task.epoch += 1
        self.leases[task.number] = Lease(task, holder, ends_at)
        return task

    def report(self, number: int, epoch: int, read: int, ends_at: float) -> bool:
        """Record how many pieces of a task were read; return whether its lease is still valid."""
        lease = self.leases.get(number)
        if lease is None or lease.task.epoch != epoch:
            return False
        lease.task.read, lease.ends_at = max(read, lease.task.read), ends_at
        if lease.task.read >= len(lease.task.pieces):
            self._end(number)
        return True

    def return_task(self, number: int, epoch: int, *, failed: bool) -> bool:
        """End the lease of an unfinished task; return whether the task has failed too often to be tried again."""
        lease = self.leases.get(number)
        if lease is None or lease.task.epoch != epoch:
            return False
        lease.task.failures += failed
        is_given_up = lease.task.failures >= MOST_FAILURES
        if is_given_up:
            self._end(number)
        else:
            self.waiting.appendleft(self.leases.pop(number).task)
        return is_given_up

    def state(self) -> dict[str, Any]:
        """Return the state of all tasks as JSON values, without the data that they contain."""
        tasks = [*self.waiting, *self.over, *(each.task for each in self.leases.values())]
        return {
            "pass": self.pass_id,
            "tasks": {each.number: [each.read, each.epoch, each.failures] for each in tasks},
            "over": [each.number for each in self.over],
            "leases": {number: each.holder for number, each in self.leases.items()},
            "waiting": [each.number for each in self.waiting],
        }

    def restore(self, state: Mapping[str, Any], ends_at: float) -> None:
        """In a new object with the same tasks, restore a state that `state` returned."""
        tasks = {task.number: task for task in self.waiting}
        for number, (read, epoch, failures) in state["tasks"].items():
            task = tasks[int(number)]
            task.read, task.epoch, task.failures = read, epoch, failures
        self.pass_id = state["pass"]
        self.over = [tasks[number] for number in state["over"]]
        self.waiting = deque(tasks[number] for number in state["waiting"])
        self.leases = {
            int(number): Lease(tasks[int(number)], Holder(*holder), ends_at)
            for number, holder in state["leases"].items()
        }

    def _end(self, number: int) -> None:
        self.over.append(self.leases.pop(number).task)
        if self.waiting or self.leases:
            return
        self.pass_id += 1
        for task in self.over:
            task.read = task.failures = 0
        self.waiting.extend(sorted(self.over, key=lambda each: each.number))
        self.over = []


def tasks_of(pieces: Sequence[tuple[str, int]], num_trainers: int) -> list[Task]:
    """Group pieces into tasks, in order: at most `MOST_PIECES` each, or fewer if trainers would get few tasks."""
    size = max(1, min(MOST_PIECES, len(pieces) // (TASKS_PER_TRAINER * max(1, num_trainers))))
    starts = range(0, len(pieces), size)
    return [Task(number, pieces[start : start + size]) for number, start in enumerate(starts)]
