# SPDX-License-Identifier: Apache-2.0
"""CompiledProgram: a program that `Executor.run` runs on several devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.executor import Executor, given
from paddle.fluid.parallel.strategies import BuildStrategy, ExecutionStrategy
from paddle.fluid.program.misuse import MISUSE
from paddle.fluid.program.program import Program
from paddle.fluid.run.feeds import entering
from paddle.fluid.run.places import CPUPlace, Place, cpu_places, cuda_places
from paddle.fluid.run.scope import Scope, global_scope
from paddle.graph.block import Name
from paddle.graph.scope import Fetched
from paddle.signatures import advice
from paddle_node.contract.classes import replace

if TYPE_CHECKING:
    from paddle.fluid.parallel.data_parallel import DataParallel

__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]


class CompiledProgram:
    """A program that runs on several devices in data parallel, once `with_data_parallel` has been called."""

    def __init__(self, program_or_graph: Program) -> None:
        if not isinstance(program_or_graph, Program):
            raise FluidTypeError(f"CompiledProgram: expected a Program, got {program_or_graph!r}")
        self._program = program_or_graph
        self._settings: tuple[BuildStrategy, list[Place] | None] | None = None
        self._parallel: DataParallel | None = None

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Sequence[Place] | None = None,
        num_trainers: int | None = None,
        trainer_id: int | None = None,
    ) -> CompiledProgram:
        """Configure data-parallel execution: each device computes a part of the batch, and gradients are averaged.

        Args:
            loss_name: a variable of the program, or None; no other effect: all losses of the program are trained.
            build_strategy: strategy for combining gradients; None means the default strategy.
            exec_strategy: ignored.
            share_vars_from: ignored: values are those of the scope.
            places: the devices; None: CPU_NUM places, or all selected GPUs, depending on the executor's place.
            num_trainers: number of trainer processes; None means the value in the build strategy or, if it has none,
                the number for which the program was transpiled.
            trainer_id: rank of this trainer; None means the value from the same place.

        Raises:
            FluidError: the method was called before, or the program has no variable loss_name.
        """
        if self._settings is not None:
            raise FluidError(
                "with_data_parallel was called twice: call it once, or create another CompiledProgram"
            )
        check_loss(self._program, loss_name)
        strategy, program = build_strategy or BuildStrategy(), self._program
        if program._trainers_endpoints and strategy.num_trainers == 1:
            count, rank = len(program._trainers_endpoints), program._trainer_id
            strategy = replace(strategy, num_trainers=count, trainer_id=rank)
        if num_trainers is not None:
            strategy = replace(strategy, num_trainers=num_trainers)
        if trainer_id is not None:
            strategy = replace(strategy, trainer_id=trainer_id)
        self._settings = strategy, list(places) if places else None
        return self

    def run(
        self, executor: Executor, feed: Any, fetch_list: Sequence[Name], scope: Scope, return_numpy: bool
    ) -> list[Any]:
        """Run the program on its devices and return the fetched values; called by `Executor.run`."""
        if self._settings is None:
            return executor.run(self._program, feed, list(fetch_list), scope=scope, return_numpy=return_numpy)
        return run_parallel(self._over(executor), self._program, feed, fetch_list, scope, return_numpy)

    def average(self, executor: Executor, scope: Scope | None = None) -> None:
        """Average the parameters of all trainers; block until every trainer has called this or ended.

        Trainers that average parameters (`sync_mode=False`, or `k_steps` above 1) must call it before they save a
        model. With summed gradients, it does nothing.

        Args:
            executor: the executor that runs the program.
            scope: where variables are stored; None means the global scope.

        Raises:
            CollectiveError: a trainer is lost, late or running a different program.
            FluidError: with_data_parallel was not called.
        """
        if self._settings is None:
            raise FluidError("average: call with_data_parallel first, with num_trainers and trainer_id")
        self._over(executor).average(scope or global_scope())

    def _over(self, executor: Executor) -> DataParallel:
        if self._parallel is None:
            from paddle.fluid.parallel.data_parallel import DataParallel  # imports collective training

            assert self._settings is not None
            strategy, places = self._settings
            chosen = places or _places_like(executor.place)
            self._parallel = DataParallel(self._program, chosen, strategy, executor.remote)
        return self._parallel


def check_loss(program: Program, loss_name: str | None) -> None:
    """Refuse the name of a loss that is not a variable of the program."""
    known = program.global_block().vars
    name = str(getattr(loss_name, "name", loss_name or ""))
    if name and name not in known:
        raise FluidError(
            f"loss_name: the program has no variable {name!r}; {advice(name, [*known], 'its variables')}"
        )


def run_parallel(
    parallel: DataParallel,
    program: Program,
    feed: Any,
    fetch_list: Sequence[Name],
    scope: Scope,
    return_numpy: bool,
) -> list[Any]:
    """Run a data-parallel program with a user's feed, and return the fetched values.

    Raises:
        FluidTypeError: the feed is neither a dict nor a list of dicts.
    """
    block = program.global_block()

    def entered(one: Mapping[str, Any]) -> dict[str, Any]:
        return {name: entering(value, block, name) for name, value in one.items()}

    feeds: Any
    if not feed:
        feeds = [{}] * parallel.device_count
    elif isinstance(feed, Mapping):
        feeds = entered(feed)
    elif isinstance(feed, (list, tuple)) and all(isinstance(each, Mapping) for each in feed):
        feeds = [entered(each) for each in feed]
    else:
        raise FluidTypeError(
            f"feed: expected a dict, or a list with one dict per place, got {feed!r}; ParallelExecutor.run takes "
            "fetch_list first: run(fetch_list=[...], feed={...})"
        )
    MISUSE.check(program, scope, has_batch=True)
    names = [each if isinstance(each, str) else each.name for each in fetch_list]
    values = parallel.run(feeds, names, scope)
    results = [given(value, name, return_numpy) for value, name in zip(values, names, strict=True)]
    MISUSE.fetched(program, names, results)
    several = parallel.device_count > 1  # a conversion of a value per place to a number names the correction
    return [each.view(Fetched) if several and type(each) is np.ndarray else each for each in results]


def _places_like(place: Place) -> list[Place]:
    return list(cpu_places()) if isinstance(place, CPUPlace) else list(cuda_places())
