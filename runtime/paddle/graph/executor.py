# SPDX-License-Identifier: Apache-2.0
"""Executor: runs programs against a scope.

A program is compiled once per (version, feeds, fetches); each step then runs a list of calls. The caller owns every
array that a run returns; none shares memory with the scope, with fed values or with another result. Not thread-safe:
use one executor per thread, and a scope from only one thread at a time.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from paddle.backend import Device, first_moment
from paddle.freed_memory import STEPS, keep_freed_memory
from paddle.graph.binding import Rooms
from paddle.graph.block import Name
from paddle.graph.bound_plan import BoundPlan, UnexpectedLod
from paddle.graph.lod import LoDArray
from paddle.graph.plan import PlanRequest, compile_plan
from paddle.graph.program import Program
from paddle.graph.scope import Scope
from paddle.ops.base.body import Remote


class Executor:
    """Runs programs on one device, the CPU or a GPU."""

    def __init__(
        self,
        device: Device | str = "cpu",
        remote: Remote | None = None,
        rooms: Rooms | None = None,
        checks_finite: bool = False,
        lane: int = 0,
    ) -> None:
        """Create an executor.

        Args:
            remote: connects operators to other processes; None means operators that communicate fail.
            rooms: variable name -> array of its shape and dtype in which an operator may store its value instead of
                allocating one; read in each run. Fetching such a variable returns that array.
            checks_finite: whether to stop at the first operator that produces NaN or infinity.
            lane: a number below 65,536; executors with different lanes draw different random numbers in runs without an
                explicit step.
        """
        self.device = Device(device) if isinstance(device, str) else device
        self._remote, self._rooms = remote, {} if rooms is None else rooms
        self._checks_finite = checks_finite
        self._first_step = first_moment(lane)
        self._fresh_seed = secrets.randbits(63)
        self._caches: WeakKeyDictionary[Program, _Cache] = WeakKeyDictionary()

    def run(
        self,
        program: Program,
        feed: Mapping[str, Any] | None = None,
        fetch_list: Sequence[Name] = (),
        scope: Scope | None = None,
        step: int | None = None,
        block_idx: int = 0,
    ) -> list[Any]:
        """Run one block and return the fetched values.

        Args:
            feed: variable name -> array or `LoDArray` of the variable's dtype and a matching shape; neither changed nor
                retained.
            fetch_list: variables or names; gradients are named `<name>@GRAD`.
            scope: holds the values of persistable variables; None means a new scope, for programs without persistable
                variables.
            step: the number that determines the random numbers of the run; None means the executor's count of runs of
                this program. A run that resumes from a checkpoint passes its own step, to draw the same numbers as an
                uninterrupted run.
            block_idx: the index of the block to run; an inner block also sees the variables of the enclosing ones.

        Returns:
            One value per fetch: an array on the executor's device, a `SelectedRows`, or a `LoDArray` where the value
            has sequences.

        Raises:
            FeedError: a value does not match its variable, or a variable is neither fed nor computed.
            NotInitializedError: a persistable variable has no value.
            ExecutionError: an operator failed; the message names it and its inputs.
            EndOfData: a reader has no more batches.
        """
        cache = self._cache(program)
        values = feed or {}
        key = (
            tuple(values),
            tuple([name if isinstance(name, str) else name.name for name in fetch_list]),
            tuple([name for name in values if type(values[name]) is LoDArray]),
            block_idx,
        )
        plan = cache.plans.get(key)
        if plan is None:
            plan = cache.plans[key] = self._compile(program, PlanRequest(*key))
        if step is None:
            step = cache.steps
            cache.steps += 1
        scope = scope or Scope()
        while True:
            try:
                with self.device.active(), np.errstate(all="ignore"):
                    return plan.run(values, scope, step)
            except UnexpectedLod as found:
                asked = plan.asked._replace(with_lod=(*plan.asked.with_lod, found.name))
                plan = cache.plans[key] = self._compile(program, asked)

    def _cache(self, program: Program) -> _Cache:
        cache = self._caches.get(program)
        if cache is None:
            cache = self._caches[program] = _Cache(program.version, self._first_step)
        elif cache.version != program.version:
            cache.version = program.version
            cache.plans.clear()
        return cache

    def _compile(self, program: Program, asked: PlanRequest) -> BoundPlan:
        keep_freed_memory(STEPS)  # set here, where steps begin: constructing an executor has no side effects
        seed = program.random_seed or self._fresh_seed
        plan = compile_plan(program, asked, seed, self.device.module(), self._remote, self._rooms)
        block = program.block(asked.block_idx)
        return BoundPlan(plan, block, self.device, self._rooms, self._checks_finite)


class _Cache:
    """The plans for one version of a program, keyed by feeds, fetches and block, and the number of runs."""

    def __init__(self, version: int, first_step: int) -> None:
        self.version = version
        self.plans: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], int], BoundPlan] = {}
        self.steps = first_step
