# SPDX-License-Identifier: Apache-2.0
"""ParallelExecutor: runs a program on several devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from paddle.fluid.compiler import check_loss, run_parallel
from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.parallel.data_parallel import DataParallel
from paddle.fluid.parallel.strategies import BuildStrategy, ExecutionStrategy
from paddle.fluid.program.program import Program, default_main_program
from paddle.fluid.run.places import Place, cpu_places, cuda_places
from paddle.fluid.run.scope import Scope, global_scope
from paddle.graph.block import Name
from paddle_node.contract.classes import replace

_C = TypeVar("_C", bound=Callable[..., Any])


def _without_program(run: _C) -> _C:
    """Return a `run` that refuses a program, which `Executor.run` takes, with the correction."""

    @wraps(run)
    def checked(self: object, *args: Any, **named: Any) -> Any:
        if "program" in named or isinstance(next(iter(args), None), Program):
            raise FluidTypeError(
                "ParallelExecutor.run takes no program: its first argument is fetch_list, as in "
                "run(fetch_list=[loss], feed=...); pass the program as ParallelExecutor(..., main_program=program)"
            )
        return run(self, *args, **named)

    return checked  # type: ignore[return-value]


class ParallelExecutor:
    """Runs one program on several devices (places), each of which computes a part of the batch."""

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
        """Create an executor.

        Args:
            use_cuda: use all selected GPUs; False: CPU_NUM places.
            loss_name: a variable of the program, or None; no other effect: all losses of the program are trained.
            main_program: the program to run; None means the default main program.
            share_vars_from: ignored: values are those of the scope.
            exec_strategy: ignored.
            build_strategy: how to combine gradients; None means the default strategy.
            num_trainers: number of trainer processes.
            trainer_id: rank of this trainer.
            scope: where variables are stored; None means the global scope.

        Raises:
            FluidError: the program was transpiled for a different number of trainers, trainer_id is out of range, or
                the program has no variable loss_name.
        """
        self._program = main_program or default_main_program()
        check_loss(self._program, loss_name)
        strategy = replace(
            build_strategy or BuildStrategy(), num_trainers=num_trainers, trainer_id=trainer_id
        )
        places: list[Place] = list(cuda_places()) if use_cuda else list(cpu_places())
        if not places:
            raise FluidError("use_cuda=True, but this machine has no GPU: set use_cuda=False")
        self._parallel = DataParallel(self._program, places, strategy)
        self._scope = scope

    @property
    def device_count(self) -> int:
        """The number of places."""
        return self._parallel.device_count

    @_without_program
    def run(
        self, fetch_list: Sequence[Name], feed: Any = None, feed_dict: Any = None, return_numpy: bool = True
    ) -> list[Any]:
        """Run the program on all places; return the fetched values, concatenated over places.

        Args:
            fetch_list: variables or names.
            feed: a dict that is split over places, or a list of one dict per place.
            feed_dict: the old name of feed.
            return_numpy: whether to return numpy arrays; False: LoDTensors.
        """
        feeding = feed if feed is not None else feed_dict
        scope = self._scope or global_scope()
        return run_parallel(self._parallel, self._program, feeding, fetch_list, scope, return_numpy)

    def average(self) -> None:
        """Average the parameters of all trainers; block until every trainer has called this or ended.

        Trainers that average parameters (`sync_mode=False`, or `k_steps` above 1) must call it before they save a
        model. With summed gradients, it does nothing.

        Raises:
            CollectiveError: a trainer is lost, late or running a different program.
        """
        self._parallel.average(self._scope or global_scope())

    def drop_local_exe_scopes(self) -> None:
        """Do nothing, because runs create no scopes that need to be dropped."""
