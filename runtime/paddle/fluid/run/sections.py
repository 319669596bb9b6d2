# SPDX-License-Identifier: Apache-2.0
"""Pipelined execution: runs each section of a program on its own thread; results equal those of the undivided program.

A batch carries the values that earlier sections computed. State that persists between batches is stored in the scope.
If a section shares state with a later section and either of them writes it, the earlier section waits until the later
one has finished the previous batch. All batches thus see the same state as in sequential execution.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from queue import Queue
from typing import Any

import numpy as np

from paddle import graph
from paddle.fluid.errors import RunError
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.graph.scope import Scope
from paddle.ops.base.registry import GRAD
from paddle.threads import ServiceThread
from paddle_node.contract.classes import dataclass


@dataclass(frozen=True)
class Section:
    """A section of a pipelined program, which runs on its own thread.

    Attributes:
        program: a program with only the section's operators.
        reads: the batch's variables that the section reads.
        makes: the batch's variables that the section writes.
        waits: numbers of later sections that must have finished the previous batch.
    """

    program: Program
    reads: frozenset[str]
    makes: frozenset[str]
    waits: tuple[int, ...]


def cut(program: Program, cuts: Sequence[Sequence[str]]) -> list[Section]:
    """Cut a program into sections for pipelined training; see `parallel.pipeline`.

    Args:
        cuts: one list of variable names per cut of the forward pass. The last list is ignored; it names the loss.
    """
    ops = [op for op in program.global_block().ops if isinstance(op, Operator)]
    numbers = _numbered(ops, [list(each) for each in cuts[:-1]])
    count = 2 * max(len(cuts), 1) - 1
    parts = [[op for op, at in zip(ops, numbers, strict=True) if at == number] for number in range(count)]
    parts = [part for part in parts if part]
    kept = {each.name for each in program.global_block().vars.values() if each.persistable}
    written = [{name for op in part for name in op.writes} for part in parts]
    read = [{name for op in part for name in op.reads} for part in parts]
    made = []
    for at, part in enumerate(parts):
        own = program.clone()
        own.global_block().ops = list(part)
        own.touch()
        waits = [
            later
            for later in range(at + 1, len(parts))
            if kept & ((written[later] & (read[at] | written[at])) | (read[later] & written[at]))
        ]
        inner: set[str] = set()
        needed: set[str] = set()
        for op in part:
            needed.update(name for name in op.reads if name not in inner)
            inner.update(op.writes)
        made.append(Section(own, frozenset(needed - kept), frozenset(written[at] - kept), tuple(waits)))
    return made


def _numbered(ops: Sequence[Operator], cuts: Sequence[Sequence[str]]) -> list[int]:
    """Return the section of each operator: not before those whose results it reads or whose inputs it changes."""
    middle, early = len(cuts), dict[int, int]()
    for number, names in enumerate(cuts):
        wanted = set(names)
        for at in reversed(range(len(ops))):
            if ops[at].role == OpRole.FORWARD and not wanted.isdisjoint(ops[at].writes):
                wanted.update(ops[at].reads)
                early.setdefault(at, number)
    after = {name + GRAD: 2 * middle - number for number, names in enumerate(cuts) for name in names}
    wrote: dict[str, int] = {}
    used: dict[str, int] = {}
    numbers = []
    for at, op in enumerate(ops):
        least = [early.get(at, middle)]
        least += [max(wrote.get(name, 0), after.get(name, 0)) for name in op.reads]
        least += [used.get(name, 0) for name in op.writes]
        numbers.append(max(least))
        wrote.update(dict.fromkeys(op.writes, numbers[-1]))
        for name in (*op.reads, *op.writes):
            used[name] = max(used.get(name, 0), numbers[-1])
    return numbers


@dataclass(frozen=True)
class _Batch:
    number: int
    values: dict[str, Any]
    fetches: tuple[str, ...]
    result: Future[list[Any]]


class Sections:
    """Runs the sections of a program as a pipeline of threads. One thread feeds the batches."""

    def __init__(
        self,
        sections: Sequence[Section],
        executors: Sequence[graph.Executor],
        scope: Scope,
        queue_size: int,
    ) -> None:
        self._sections, self._executors, self._scope = list(sections), list(executors), scope
        self._queues: list[Queue[_Batch | None]] = [Queue(queue_size) for _ in sections]
        self._done = [0] * len(self._sections)
        self._changed = threading.Condition()
        self._failed: BaseException | None = None
        self._number = 0

    def put(self, values: Mapping[str, Any], fetches: Sequence[str]) -> Future[list[Any]]:
        """Feed a batch; blocks while the first section's queue is full.

        Raises:
            RunError: a section failed on an earlier batch.
        """
        self._raise_failure()
        batch = _Batch(self._number, dict(values), tuple(fetches), Future())
        self._number += 1
        self._queues[0].put(batch)
        return batch.result

    @contextmanager
    def working(self) -> Iterator[None]:
        """Return a context that runs the threads and, on exit, waits for all batches.

        Raises:
            RunError: a section failed.
        """
        threads = [
            ServiceThread(partial(self._serve, at), name=f"section-{at}") for at in range(len(self._sections))
        ]
        try:
            yield
        finally:
            self._queues[0].put(None)
            for thread in threads:
                thread.join()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise RunError(f"a section of the pipeline failed: {self._failed}") from self._failed

    def _serve(self, at: int) -> None:
        following = self._queues[at + 1] if at + 1 < len(self._queues) else None
        while (batch := self._queues[at].get()) is not None:
            try:
                if self._failed is None:
                    self._run(at, batch)
            except Exception as error:  # noqa: BLE001 - raised again where batches are given
                self._fail(error)
            if following is not None:
                following.put(batch)
            elif self._failed is None:
                batch.result.set_result([batch.values.get(name) for name in batch.fetches])
            else:
                batch.result.set_exception(self._failed)
        if following is not None:
            following.put(None)

    def _run(self, at: int, batch: _Batch) -> None:
        section = self._sections[at]
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._failed is not None
                    or all(self._done[other] >= batch.number for other in section.waits)
                )
            )
        if self._failed is not None:
            return
        later = {name for other in self._sections[at + 1 :] for name in other.reads}
        wanted = (later | {*batch.fetches}) & section.makes
        if at + 1 == len(self._sections):  # including the contents of the scope
            wanted |= {*batch.fetches} - batch.values.keys()
        fetches = sorted(wanted)
        feed = {name: batch.values[name] for name in section.reads if name in batch.values}
        found = self._executors[at].run(section.program, feed, fetches, self._scope, batch.number)
        for name, value in zip(fetches, found, strict=True):
            # An output that the operator omitted and that its gradient does not read.
            spec = section.program.global_block().var(name)
            empty = np.zeros([max(size, 0) for size in spec.shape], spec.dtype)
            batch.values[name] = empty if value is None else value
        with self._changed:
            self._done[at] = batch.number + 1
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failed = self._failed or error
            self._changed.notify_all()
