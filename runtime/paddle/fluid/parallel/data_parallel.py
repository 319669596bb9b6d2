# SPDX-License-Identifier: Apache-2.0
"""DataParallel: runs a program's passes on several devices in parallel, and its updates once.

Each place (device) computes the gradients of its part of the batch, on a thread with its own executor. Gradients are
summed in the order of the places, so that runs are reproducible; since each loss's gradient is 1/ranks, the sum is the
mean. Variables that a pass itself writes, such as the moving means of batch norm, exist once per place; the scope has
those of place 0.

With several trainers, gradients are also summed over the trainers, during the backward pass if there is one place.
Alternatively, each trainer updates its own parameters, which are then averaged. All trainers start with the values of
trainer 0.

With gradient accumulation, each place computes its part of the batch in several repeats, one after the other, whose
gradients are averaged before the updates. If the scope has `<name>.repeat.<n>` for a variable that a pass writes,
repeat n uses that one instead.

A program whose later losses need the updates of earlier ones is cut after these updates: its rest is a second
DataParallel, which gets the values of each place that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from paddle import graph
from paddle.fluid.errors import FluidError
from paddle.fluid.parallel.gradient_exchange import GradientExchange
from paddle.fluid.parallel.meeting import Meeting
from paddle.fluid.parallel.partition import carried_over, rest_at
from paddle.fluid.parallel.ranks import LocalSteps, agree_on, begin_equal, check_ranks, group_of, local_steps
from paddle.fluid.parallel.split_program import REDUCED, SplitProgram
from paddle.fluid.parallel.strategies import BuildStrategy
from paddle.fluid.program.operator import Operator
from paddle.fluid.program.program import Program
from paddle.fluid.remote.distribution import SENDING
from paddle.fluid.remote.switchboard import Switchboard
from paddle.fluid.run.batch_queue import readers_named
from paddle.fluid.run.feeds import joined, keep_persistable, split_feed
from paddle.fluid.run.flags import checks_finite
from paddle.fluid.run.places import CUDAPlace, Place
from paddle.fluid.run.scope import Scope
from paddle.ops.base.selected_rows import SelectedRows, concatenated
from paddle_node.contract.classes import replace


class DataParallel:
    """Runs one program on several devices (places) in data parallel. Not thread-safe."""

    def __init__(
        self,
        program: Program,
        places: Sequence[Place],
        strategy: BuildStrategy,
        remote: Switchboard | None = None,
        *,
        is_rest: bool = False,
    ) -> None:
        """Split the program into passes and updates, without running anything.

        Args:
            program: the program, with or without its backward pass and updates.
            places: a single place, or several CPU places.
            strategy: the number of trainers, and the gradient of each loss.
            remote: the connection to parameter servers; None means a new one.
            is_rest: whether it runs after the updates of another part, so that all trainers have equal values.

        Raises:
            RunError: there are several trainers and their addresses are not given.
            FluidError: there are several GPUs, or the number of trainers differs.
        """
        check_ranks(program, strategy)
        if len(places) > 1 and any(isinstance(place, CUDAPlace) for place in places):
            raise FluidError(
                f"{len(places)} GPUs in one process are not supported: start one process per GPU with "
                "paddle.distributed.launch"
            )
        self._places = list(places)
        self._meeting = Meeting(len(places))
        self._exchange: GradientExchange | None = None
        self._local: LocalSteps | None = None
        self._met: Scope | None = None
        self._remote = remote or Switchboard()
        self._executors = [
            graph.Executor(place.device(), self._remote, checks_finite=checks_finite()) for place in places
        ]
        self._scopes: list[graph.Scope] = []
        self._base: Scope | None = None
        self._program, self._strategy, self._is_rest = program, strategy, is_rest
        self._build()

    @property
    def device_count(self) -> int:
        """The number of devices (places)."""
        return len(self._places)

    def run(
        self, feeds: Sequence[Mapping[str, Any]] | Mapping[str, Any], fetches: Sequence[str], scope: Scope
    ) -> list[Any]:
        """Run the program and return the fetched values, joined over places.

        Args:
            feeds: one feed per place, or a single feed that is split over the places.

        Raises:
            FluidError: the number of feeds and of places differ, or a loss needs the updates of another one.
        """
        if self._version != self._program.version:
            self._build()
        self._split.check_order([name for name in fetches if name not in self._later])
        parts = split_feed(feeds, self.device_count) if isinstance(feeds, Mapping) else list(feeds)
        if len(parts) != self.device_count:
            raise FluidError(f"expected one feed for each of {self.device_count} places, got {len(parts)}")
        # The first place runs in the scope itself; the other places get their feeds.
        parts[0] = keep_persistable(parts[0], self._source.global_block(), scope)
        self._meet(scope)
        with (
            self._remote.connected(self._source, scope),
            self._remote.among(self._meeting),
            readers_named(self._source.global_block()),
        ):
            return self._step(parts, fetches, scope)

    def _build(self) -> None:
        """Split the program into passes and updates and, if its losses need it, a rest."""
        program, self._version, self._met = self._program, self._program.version, None
        ops = [op for op in program.global_block().ops if isinstance(op, Operator)]
        kept = {name for name, each in program.global_block().vars.items() if each.persistable}
        self._source, self._rest, self._later, self._carried = program, None, set[str](), list[str]()
        at = rest_at(ops, kept.__contains__) if self._may_be_cut(ops) else None
        if at is not None:
            self._source, rest = _part(program, ops[:at]), _part(program, ops[at:])
            self._rest = DataParallel(rest, self._places, self._strategy, self._remote, is_rest=True)
            self._later = {name for op in ops[at:] for name in op.writes}
            self._carried = sorted(carried_over(ops[:at], ops[at:], kept.__contains__))
        self._split = SplitProgram(self._source, self._strategy, self.device_count, self._post)

    def _may_be_cut(self, ops: Sequence[Operator]) -> bool:
        repeats = self._strategy._finalize_strategy_and_create_passes().repeats
        is_alone = self._strategy.num_trainers * self.device_count == 1
        is_plain = self._program._averaging is None and not any(op.type in SENDING for op in ops)
        return is_plain and repeats == 1 and not is_alone

    def average(self, scope: Scope) -> None:
        """Average the parameters of all trainers; block until every trainer has called this or ended.

        If trainers sum gradients, their parameters are already equal, and the call does nothing.

        Raises:
            CollectiveError: a trainer is lost, late or running a different program.
        """
        self._meet(scope)
        if self._local is not None:
            self._local.average(scope)

    def _step(self, parts: Sequence[Mapping[str, Any]], fetches: Sequence[str], scope: Scope) -> list[Any]:
        own = dict.fromkeys((*(name for name in fetches if name not in self._later), *self._carried))
        late = [name for name in own if name in self._split.updated or name in self._split.grads]
        early = [name for name in own if name not in late]
        taken = [] if self._split.posts else self._split.grads
        by_place: list[list[list[Any]]] = [[] for _ in parts]
        sums: dict[str, Any] = {}
        given: dict[str, Any] = {}
        try:
            for number, each in enumerate(self._repeated(parts)):
                with self._own_variables(scope, number):
                    results = self._passes(each, [*early, *taken, *self._split.given], scope)
                for place, found in zip(by_place, results, strict=True):
                    place.append(found[: len(early)])
                for at, name in enumerate(taken, len(early)):
                    before = [sums[name]] if number else []
                    sums[name] = _total([*before, *(found[at] for found in results)])
                given = dict(zip(self._split.given, results[0][len(early) + len(taken) :], strict=True))
        except Exception as error:
            if self._exchange is not None:
                self._exchange.abandon(error)
            raise
        if self._split.repeats > 1:
            sums = {name: _divided(total, self._split.repeats) for name, total in sums.items()}
        ordered: list[list[Any]] = [found for place in by_place for found in place]
        values = {
            name: joined([each[at] for each in ordered]) for at, name in enumerate(early) if name in fetches
        }
        if self._split.updating.global_block().ops:
            ready = {**self._over_trainers(sums), **given}
            fed = {name + REDUCED: value for name, value in ready.items()}
            fed |= {name: value for name, value in parts[0].items() if name in self._split.fed}
            late_values = self._executors[0].run(self._split.updating, fed, late, scope)
            for name, value in zip(late, late_values, strict=True):
                values[name] = joined([value] * len(parts))
                for found in ordered:
                    found.append(value)
            if self._local is not None:
                self._local.step(scope)
        if self._rest is not None:
            carried = [dict(zip((*early, *late), found, strict=True)) for found in ordered]
            feeds = [
                {**part, **{name: each[name] for name in self._carried}}
                for part, each in zip(parts, carried, strict=True)
            ]
            later = [name for name in fetches if name in self._later]
            values |= zip(later, self._rest.run(feeds, later, scope), strict=True)
        return [values[name] for name in fetches]

    def _repeated(self, parts: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
        """Return the feeds of all places for each repeat; persistable variables are not divided."""
        feeds: list[list[dict[str, Any]]] = [[] for _ in range(self._split.repeats)]
        for part in parts:
            kept = {name: value for name, value in part.items() if self._split.is_kept(name)}
            batch = {name: value for name, value in part.items() if name not in kept}
            for feed, each in zip(feeds, split_feed(batch, self._split.repeats, "repeat"), strict=True):
                feed.append({**kept, **each})
        return feeds

    @contextmanager
    def _own_variables(self, scope: Scope, number: int) -> Iterator[None]:
        """Exchange the variables that a pass writes for those of its repeat, if the scope has them."""
        own = {name: f"{name}.repeat.{number}" for name in self._split.kept if self._split.repeats > 1}
        cells = [(scope.cell(name), scope.cell(other)) for name, other in own.items() if scope.has(other)]

        def exchange() -> None:
            for cell, other in cells:
                cell.value, other.value = other.value, cell.value

        exchange()
        try:
            yield
        finally:
            exchange()

    def _meet(self, scope: Scope) -> None:
        """Connect to the other trainers before the first step in a scope."""
        if (
            self._strategy.num_trainers == 1
            or scope is self._met
            or not (self._split.grads or self._split.meets)
        ):
            return
        if self._source._averaging is not None:
            self._local = local_steps(self._source, self._strategy, scope)
            self._met = scope
            return
        group = group_of(self._source, self._strategy, scope, self._places[0].device())
        agree_on(self._source, group)
        if not self._is_rest:
            begin_equal(self._source, group, scope)
        if self._exchange is not None:
            self._exchange.close()
        self._exchange = GradientExchange(group, self._split.buckets)
        self._meeting.group = group
        self._met = scope

    def _over_trainers(self, sums: dict[str, Any]) -> Mapping[str, Any]:
        if self._exchange is None:
            return sums
        if not self._split.posts:
            for number, bucket in enumerate(self._split.buckets):
                self._exchange.post(number, [sums[name] for name in bucket.names])
        return self._exchange.finish()

    def _post(self, number: int, values: Sequence[Any]) -> None:
        assert self._exchange is not None
        self._exchange.post(number, values)

    def _passes(
        self, parts: Sequence[Mapping[str, Any]], fetches: list[str], scope: Scope
    ) -> list[list[Any]]:
        scopes = self._own_scopes(scope)
        return self._meeting.run(
            [
                partial(executor.run, self._split.passing, part, fetches, own)
                for executor, part, own in zip(self._executors, parts, scopes, strict=True)
            ]
        )

    def _own_scopes(self, scope: Scope) -> list[graph.Scope]:
        """Return a scope for each place; all but the first have copies of the variables that a pass writes."""
        if self._base is not scope:
            self._base = scope
            self._scopes = [scope, *(graph.Scope(scope) for _ in self._places[1:])]
        for own in self._scopes[1:]:
            for name in self._split.kept:
                if name not in own.names() and scope.has(name):
                    own.set(name, scope.get(name).copy())
        return self._scopes


def _part(program: Program, ops: Sequence[Operator]) -> Program:
    """Return a copy of a program with some of the operators of its block 0."""
    copy = program.clone()
    copy.global_block().ops = list(ops)
    copy.touch()
    return copy


def _total(values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    if isinstance(values[0], SelectedRows):
        return concatenated(values)
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _divided(value: Any, count: int) -> Any:
    if isinstance(value, SelectedRows):
        return replace(value, values=_divided(value.values, count))
    return value / value.dtype.type(count) if value.dtype.kind == "f" else value
