# SPDX-License-Identifier: Apache-2.0
"""Queues of tasks over pieces of data, which determine which trainer reads which pieces in a pass.

A piece is a chunk of a recordio file; a task is a few consecutive pieces. A trainer leases a task, reports each piece
that it has read to its end, and gets the next task. A task whose trainer exits, is replaced, or reports nothing for
`LEASE_S` goes to another trainer from its first unread piece on. A task that failed `MOST_FAILURES` times is given up
for this pass. A pass is over when no task is waiting or leased; then all tasks wait for the next one.

In each pass every piece is read to its end by one trainer. A trainer that loses its lease may have read a part of one
piece before, which is then read twice: a lease cannot promise more.

All changes can be written to a journal, from which a new process continues.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

from paddle.errors import ConfigError
from paddle.reader.leases import MOST_FAILURES, Dataset, Holder, tasks_of
from paddle_node.contract.classes import dataclass, field

LEASE_S = 1200.0
LOST_S = 2.0  # a connection that broke may come back
PASSES_READ: list[int] = []
"""The passes that this process has started to read from a queue, of all data sets."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Client:
    address: bytes
    lost_at: float | None = None


@dataclass(slots=True)
class _Saving:
    """The trainer that saves the model, and the time until which no other trainer may."""

    trainer: str = ""
    ends_at: float = 0.0


@dataclass(slots=True)
class TaskQueues:
    """The task queues of all data sets of a job. Not thread-safe.

    A repeated request gets the same answer, so a client can send it again.

    Attributes:
        num_trainers: the number of trainers of the job, which decides the size of tasks.
        clock: returns monotonic seconds.
    """

    num_trainers: int = 1
    clock: Callable[[], float] = time.monotonic
    _datasets: dict[str, Dataset] = field(default_factory=dict)
    _pieces: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    _clients: dict[Holder, _Client] = field(default_factory=dict)
    _saving: _Saving = field(default_factory=_Saving)
    _journal: TextIO | None = None
    _path: Path = Path()

    def keep(self, journal: Path) -> None:
        """Continue from a journal, if there is one, and write all changes to it.

        Raises:
            OSError: the journal cannot be read or written.
        """
        self._journal, self._path = journal.open("a+", encoding="utf-8"), journal
        self._journal.seek(0)
        text = self._journal.read()
        whole = text[: text.rfind("\n") + 1]  # the process may have ended within a line
        for line in whole.splitlines():
            self._apply(json.loads(line))
        self._journal.truncate(len(whole.encode()))

    def close(self) -> None:
        """Close the journal, which remains for the next process."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def ask(self, holder: Holder, question: Mapping[str, Any], address: bytes = b"") -> dict[str, Any]:
        """Process a request of a trainer and return the answer.

        Args:
            holder: the process that asks. Tasks of an earlier process of the same trainer return to the queue.
            question: {"ask": a name in the table below, ...}.
            address: the address of its connection, as for `lose`.

        Raises:
            ConfigError: the question is malformed, or its data set differs from that of the other trainers.
        """
        self._meet(holder, address)
        try:
            return _ANSWERS[question["ask"]](self, holder, question)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"malformed request to the task queue: {error!r}") from error

    def lose(self, address: bytes) -> None:
        """Record that a trainer's connection was lost."""
        for client in self._clients.values():
            if client.address == address and client.lost_at is None:
                client.lost_at = self.clock()

    def tick(self) -> None:
        """Return tasks to the queue if their lease has expired, or their trainer has been disconnected for `LOST_S`."""
        now = self.clock()
        for name, data in self._datasets.items():
            for number, lease in list(data.leases.items()):
                client = self._clients.get(lease.holder)
                is_lost = client is not None and client.lost_at is not None and now - client.lost_at >= LOST_S
                if is_lost or now >= lease.ends_at:
                    why = "its connection was lost" if is_lost else f"it sent no report for {LEASE_S:.0f} s"
                    _log.warning(
                        "task %d of %s returns to the queue from trainer %d: %s",
                        number,
                        name,
                        lease.holder.trainer,
                        why,
                    )
                    self._note(["return", name, number, lease.task.epoch, False])

    def _meet(self, holder: Holder, address: bytes) -> None:
        """Register a process; the tasks of an earlier process of the same trainer return to the queue."""
        client = self._clients.get(holder)
        if client is None:
            leases = [lease.holder for data in self._datasets.values() for lease in data.leases.values()]
            for earlier in {*self._clients, *leases}:
                if earlier.trainer == holder.trainer and earlier.session != holder.session:
                    self._return_all(earlier)
            self._clients[holder] = _Client(address)
        else:
            client.address, client.lost_at = address, None

    def _return_all(self, holder: Holder) -> None:
        self._clients.pop(holder, None)
        for name, data in self._datasets.items():
            task = data.held_by(holder)
            if task is not None:
                self._note(["return", name, task.number, task.epoch, False])

    def _on_dataset(self, holder: Holder, question: Mapping[str, Any]) -> dict[str, Any]:
        name, files = str(question["name"]), question["files"]
        pieces = [(str(path), int(at)) for path, places in files for at in places]
        if name not in self._datasets:
            if not pieces:
                raise ConfigError(f"the data set {name} has no records")
            self._note(["dataset", name, pieces])
        elif pieces != self._pieces[name]:
            known = self._pieces[name]
            path, at = next(mine or theirs for mine, theirs in zip_longest(pieces, known) if mine != theirs)
            raise ConfigError(
                f"the data set {name} differs between trainers: trainer {holder.trainer} has "
                f"{len(pieces)} chunks, but the first trainer had {len(known)}. They first differ "
                f"at the chunk at byte {at} of {path}. All trainers must see the same files under the same paths"
            )
        return {"tasks": self._count(name)}

    def _on_get(self, holder: Holder, question: Mapping[str, Any]) -> dict[str, Any]:
        name, asked = str(question["name"]), int(question["pass"])
        data = self._datasets[name]
        task = data.held_by(holder)
        if task is None:
            if asked < data.pass_id:
                return {"state": "over"}
            if not data.waiting:
                return {"state": "over" if asked == data.pass_id else "wait"}
            self._note(["lease", name, *holder])
            task = data.held_by(holder)
            assert task is not None
        return {
            "state": "task",
            "number": task.number,
            "epoch": task.epoch,
            "read": task.read,
            "pieces": task.pieces,
        }

    def _on_read(self, holder: Holder, question: Mapping[str, Any]) -> dict[str, Any]:
        name, number, epoch = str(question["name"]), int(question["number"]), int(question["epoch"])
        lease = self._datasets[name].leases.get(number)
        is_held = lease is not None and lease.holder == holder and lease.task.epoch == epoch
        if is_held:
            self._note(["read", name, number, epoch, int(question["read"])])
        return {"held": is_held}

    def _on_failed(self, holder: Holder, question: Mapping[str, Any]) -> dict[str, Any]:
        name, number, epoch = str(question["name"]), int(question["number"]), int(question["epoch"])
        if self._note(["return", name, number, epoch, True]):
            _log.error(
                "task %d of %s failed %d times and is skipped for this pass; the last failure was on trainer %d: %s",
                number,
                name,
                MOST_FAILURES,
                holder.trainer,
                question.get("why", ""),
            )
        return {}

    def _on_save(self, holder: Holder, question: Mapping[str, Any]) -> dict[str, Any]:
        trainer, now = str(question["trainer"]), self.clock()
        is_free = now >= self._saving.ends_at or self._saving.trainer == trainer
        if is_free:
            block_s = float(question["block_s"])
            if not math.isfinite(block_s):
                raise ConfigError(f"request_save_model: expected a finite time, got {block_s} s")
            self._saving = _Saving(trainer, now + block_s)
        return {"approved": is_free}

    def _on_release(self, holder: Holder, question: Mapping[str, Any]) -> dict[str, Any]:
        self._return_all(holder)
        return {}

    def _count(self, name: str) -> int:
        data = self._datasets[name]
        return len(data.waiting) + len(data.leases) + len(data.over)

    def _note(self, event: list[Any]) -> bool:
        """Write an event to the journal and apply it."""
        passes = self._passes()
        result = self._apply(event)
        if self._journal is not None:
            try:
                if self._passes() == passes:
                    self._journal.write(json.dumps(event) + "\n")
                    self._journal.flush()
                else:
                    self._shorten()
            except OSError as error:
                _log.error("%s: %s; a restart of this server would repeat tasks", self._path, error)
                self.close()
        return result

    def _passes(self) -> int:
        return sum(data.pass_id for data in self._datasets.values())

    def _shorten(self) -> None:
        """Replace the journal by the current state, so that it does not grow from pass to pass."""
        new = self._path.with_suffix(".new")
        states = [["state", name, self._pieces[name], data.state()] for name, data in self._datasets.items()]
        new.write_text("".join(json.dumps(each) + "\n" for each in states), encoding="utf-8")
        self.close()
        new.replace(self._path)
        self._journal = self._path.open("a", encoding="utf-8")

    def _apply(self, event: list[Any]) -> bool:
        kind, name, *rest = event
        ends_at = self.clock() + LEASE_S
        if kind in ("dataset", "state"):
            self._pieces[name] = [(path, at) for path, at in rest[0]]
            self._datasets[name] = Dataset(tasks_of(self._pieces[name], self.num_trainers))
            if kind == "state":
                self._datasets[name].restore(rest[1], ends_at)
            return False
        data = self._datasets[name]
        if kind == "lease":
            data.lease(Holder(*rest), ends_at)
            return False
        if kind == "read":
            number, epoch, read = rest
            return data.report(number, epoch, read, ends_at)
        number, epoch, failed = rest
        return data.return_task(number, epoch, failed=failed)


_ANSWERS: Mapping[str, Callable[[TaskQueues, Holder, Mapping[str, Any]], dict[str, Any]]] = {
    "dataset": TaskQueues._on_dataset,
    "get": TaskQueues._on_get,
    "read": TaskQueues._on_read,
    "failed": TaskQueues._on_failed,
    "save": TaskQueues._on_save,
    "release": TaskQueues._on_release,
}
