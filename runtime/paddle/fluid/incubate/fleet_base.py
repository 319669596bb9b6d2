# SPDX-License-Identifier: Apache-2.0
"""fleet: one script for both workers and servers, based on `DistributeTranspiler`.

fleet.init(role_maker.PaddleCloudRoleMaker())
fleet.distributed_optimizer(optimizer, DistributeTranspilerConfig()).minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    fleet.init_worker()
    exe.run(fleet.startup_program)
    ...  # train fleet.main_program
    fleet.stop_worker()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.fluid import io
from paddle.fluid.compiler import CompiledProgram
from paddle.fluid.errors import FluidError
from paddle.fluid.executor import Executor
from paddle.fluid.incubate.role_maker import PaddleCloudRoleMaker, RoleMakerBase
from paddle.fluid.program.program import Program, default_startup_program
from paddle.fluid.remote.connection import Connection
from paddle.fluid.transpiler import DistributeTranspiler, DistributeTranspilerConfig


class Fleet:
    """The base of fleets, which are interfaces to a job for one of its processes; call `init` first.

    Attributes:
        main_program, startup_program: the programs that this process runs, set by `minimize`.
    """

    is_collective = False

    def __init__(self) -> None:
        """Create a fleet without a role; `init` sets it."""
        self.main_program: Program | CompiledProgram | None = None
        self.startup_program: Program | None = None
        self._origin_program: Program | None = None
        self._role_maker: RoleMakerBase | None = None
        self._transpiler: DistributeTranspiler | None = None
        self._executor: Executor | None = None

    def init(self, role_maker: RoleMakerBase) -> None:
        """Determine the role of this process.

        Raises:
            FluidError: the argument is not a role maker, or is one for a different kind of fleet.
        """
        if not isinstance(role_maker, RoleMakerBase):
            raise FluidError(
                f"role_maker: expected a role maker of fleet.base.role_maker, got {role_maker!r}"
            )
        if role_maker.is_collective != self.is_collective:
            kind = (
                "collective.fleet"
                if role_maker.is_collective
                else "parameter_server.distribute_transpiler.fleet"
            )
            also = ", or pass is_collective=True" if isinstance(role_maker, PaddleCloudRoleMaker) else ""
            raise FluidError(f"role_maker: {type(role_maker).__name__} only works with fleet.{kind}{also}")
        role_maker.generate_role()
        self._role_maker = role_maker

    @property
    def _roles(self) -> RoleMakerBase:
        if self._role_maker is None:
            raise FluidError("call fleet.init(role_maker) first")
        return self._role_maker

    def is_worker(self) -> bool:
        """Return whether this process trains."""
        return self._roles.is_worker()

    def is_server(self) -> bool:
        """Return whether this process serves parameters."""
        return self._roles.is_server()

    def is_first_worker(self) -> bool:
        """Return whether this is worker 0."""
        return self._roles.is_first_worker()

    def worker_num(self) -> int:
        """Return the number of workers."""
        return self._roles.worker_num()

    def worker_index(self) -> int:
        """Return this worker's index, which counts from 0."""
        return self._roles.worker_index()

    def server_num(self) -> int:
        """Return the number of servers."""
        return self._roles.server_num()

    def server_index(self) -> int:
        """Return this server's index, which counts from 0."""
        return self._roles.server_index()

    def worker_endpoints(self, to_string: bool = False) -> list[str] | str:
        """Return the "ip:port" of each worker in a list, or as one comma-separated string if to_string."""
        return _joined(self._roles.get_trainer_endpoints(), to_string)

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        """Return the "ip:port" of each server in a list, or as one comma-separated string if to_string."""
        return _joined(self._roles.get_pserver_endpoints(), to_string)

    def split_files(self, files: Sequence[str]) -> list[str]:
        """Return this worker's share of a list of files: consecutive paths; shares differ by at most one file.

        Raises:
            FluidError: the argument is not a list.
        """
        if isinstance(files, str):
            raise FluidError(f"files: expected a list, got the string {files!r}")
        each, more = divmod(len(files), self.worker_num())
        number = self.worker_index()
        start = number * each + min(number, more)
        return list(files[start : start + each + (number < more)])

    def distributed_optimizer(
        self, optimizer: Any, strategy: DistributeTranspilerConfig | None = None
    ) -> DistributedOptimizer:
        """Return an optimizer whose `minimize` creates the programs of this process."""
        return DistributedOptimizer(self, optimizer, strategy or DistributeTranspilerConfig())

    def init_worker(self) -> None:
        """Do nothing, because the worker's startup program, made by `minimize`, already waits for the servers."""
        self._made("init_worker")

    def init_server(self, model_dir: str | None = None) -> None:
        """Set the server's variables to initial values, or to values saved by `save_persistables` in `model_dir`."""
        program, startup = self._made("init_server")
        self._executor = Executor()
        self._executor.run(startup)
        if model_dir is not None:
            io.load_persistables(self._executor, model_dir, program)

    def run_server(self) -> None:
        """Serve until all workers have left.

        Raises:
            FluidError: `init_server` was not called.
        """
        program, _ = self._made("run_server")
        if self._executor is None:
            raise FluidError("call fleet.init_server() before fleet.run_server()")
        self._executor.run(program)

    def stop_worker(self) -> None:
        """Disconnect from the servers, so that they no longer wait for this worker."""
        program, _ = self._made("stop_worker")
        for connection in program._connections:
            if isinstance(connection, Connection):
                connection.close()

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: Sequence[str],
        target_vars: Sequence[Any],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save the original program's operators that compute the targets; see `fluid.io.save_inference_model`."""
        io.save_inference_model(
            dirname,
            feeded_var_names,
            target_vars,
            executor,
            main_program or self._origin_program,
            export_for_deployment=export_for_deployment,
        )

    def save_persistables(
        self, executor: Executor, dirname: str, main_program: Program | None = None
    ) -> None:
        """Save the values of all persistable variables in a folder, including those on servers."""
        own = self.main_program if isinstance(self.main_program, Program) else self._origin_program
        io.save_persistables(executor, dirname, main_program or own)

    def _made(self, method: str) -> tuple[Program, Program]:
        if not isinstance(self.main_program, Program) or self.startup_program is None:
            raise FluidError(f"fleet.{method}: call fleet.distributed_optimizer(...).minimize(...) first")
        return self.main_program, self.startup_program

    def _transpile(self, config: DistributeTranspilerConfig, program: Program, startup: Program) -> None:
        roles, transpiler = self._roles, DistributeTranspiler(config)
        self._origin_program, self._transpiler = program.clone(), transpiler
        if self.is_collective:
            workers = roles.get_trainer_endpoints()
            transpiler.transpile(
                roles.worker_index(),
                program,
                trainers=",".join(workers),
                startup_program=startup,
                current_endpoint=workers[roles.worker_index()],
            )
            self.main_program, self.startup_program = program, startup
            return
        servers = roles.get_pserver_endpoints()
        transpiler.transpile(
            roles.worker_index() if roles.is_worker() else 0,
            program,
            pservers=",".join(servers),
            trainers=roles.worker_num(),
            sync_mode=config.sync_mode,
            startup_program=startup,
        )
        if roles.is_worker():
            self.main_program, self.startup_program = (
                transpiler.get_trainer_program(config.wait_port),
                startup,
            )
        else:
            self.main_program, self.startup_program = transpiler.get_pserver_programs(
                servers[roles.server_index()]
            )


class DistributedOptimizer:
    """A wrapper of an optimizer whose `minimize` also distributes the program."""

    def __init__(self, fleet: Fleet, optimizer: Any, strategy: DistributeTranspilerConfig) -> None:
        """Wrap an optimizer of `fluid.optimizer`."""
        self._fleet, self._optimizer, self._strategy = fleet, optimizer, strategy

    def backward(self, loss: Any, **arguments: Any) -> Any:
        """Append the backward pass of the wrapped optimizer; return (parameter, gradient) pairs."""
        return self._optimizer.backward(loss, **arguments)

    def apply_gradients(self, params_grads: Any) -> Any:
        """Append clipping, decay and updates of the wrapped optimizer; return the update operators."""
        return self._optimizer.apply_gradients(params_grads)

    def minimize(
        self,
        loss: Any,
        scope: object = None,
        startup_program: Program | None = None,
        parameter_list: Sequence[str] | None = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append gradients and updates, then create this process's programs from the result.

        Args:
            scope: ignored.

        Returns:
            The result of the optimizer's `minimize`.
        """
        startup = startup_program or default_startup_program()
        found = self._optimizer.minimize(loss, startup, parameter_list, no_grad_set)
        self._fleet._transpile(self._strategy, loss.block.program, startup)
        return found


def _joined(endpoints: list[str], to_string: bool) -> list[str] | str:
    return ",".join(endpoints) if to_string else endpoints
