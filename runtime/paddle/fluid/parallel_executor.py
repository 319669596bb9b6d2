# SPDX-License-Identifier: Apache-2.0
"""ParallelExecutor: a program over several places, with a `run` of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paddle.fluid.compiler import run_parallel
from paddle.fluid.errors import FluidError
from paddle.fluid.parallel.data_parallel import DataParallel
from paddle.fluid.parallel.strategies import BuildStrategy, ExecutionStrategy
from paddle.fluid.program.defaults import default_main_program
from paddle.fluid.program.program import Program
from paddle.fluid.run.places import Place, cpu_places, cuda_places
from paddle.fluid.run.scope import Scope, global_scope
from paddle.graph.block import Name


class ParallelExecutor:
    """Runs one program, a part of the batch on each place."""

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ) -> None:
        """Prepare.

        Args:
            use_cuda: all selected GPUs; else CPU_NUM places.
            loss_name: the loss that is trained.
            main_program: None is the default one.
            share_vars_from: has no meaning: values are those of the scope.
            exec_strategy: has no meaning.
            build_strategy: None is the default one.
            num_trainers: processes that train together.
            trainer_id: which of them this is.
            scope: None is the global one.

        Raises:
            FluidError: num_trainers is not what the program was transpiled for, or trainer_id is beyond it.
        """
        self._program = main_program or default_main_program()
        strategy = replace(
            build_strategy or BuildStrategy(), num_trainers=num_trainers, trainer_id=trainer_id
        )
        places: list[Place] = list(cuda_places()) if use_cuda else list(cpu_places())
        if not places:
            raise FluidError("use_cuda=True, but there is no GPU here")
        self._parallel = DataParallel(self._program, places, strategy, loss_name)
        self._scope = scope

    @property
    def device_count(self) -> int:
        """How many places there are."""
        return self._parallel.device_count

    def run(
        self, fetch_list: Sequence[Name], feed: Any = None, feed_dict: Any = None, return_numpy: bool = True
    ) -> list[Any]:
        """Run once and return what places fetched, joined.

        Args:
            fetch_list: variables or names.
            feed: a dict that is split over places, or a list of a dict for each.
            feed_dict: the older name of feed.
            return_numpy: arrays; False: LoDTensors.
        """
        feeding = feed if feed is not None else feed_dict
        scope = self._scope or global_scope()
        return run_parallel(self._parallel, self._program, feeding, fetch_list, scope, return_numpy)

    def average(self) -> None:
        """Wait until all trainers call this or have ended; then all have the same parameters, and may go on.

        Trainers that average parameters (`sync_mode=False`, or `k_steps` above 1) call it before they save a model;
        where gradients are summed, nothing happens.

        Raises:
            CollectiveError: a trainer is lost, differs or is late.
        """
        self._parallel.average(self._scope or global_scope())

    def drop_local_exe_scopes(self) -> None:
        """Do nothing: a run leaves nothing behind."""
