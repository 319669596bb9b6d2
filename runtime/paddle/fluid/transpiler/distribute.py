# SPDX-License-Identifier: Apache-2.0
"""DistributeTranspiler: derives the programs of trainers and servers from the program for one machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from numbers import Integral
from typing import Any, ParamSpec, TypeVar

from paddle.endpoints import check_endpoints
from paddle.env import JobEnvironment
from paddle.fluid.errors import FluidError
from paddle.fluid.program.program import Program, default_main_program, default_startup_program
from paddle.fluid.remote.connection import Connection
from paddle.fluid.remote.distribution import SENDING, Distribution, wait_for_ports
from paddle.fluid.remote.serving import PROMISES
from paddle.fluid.transpiler import growing, trainer_side
from paddle.fluid.transpiler.collective_side import transpile_collective
from paddle.fluid.transpiler.configuration import DistributeTranspilerConfig, PSDispatcher, RoundRobin
from paddle.fluid.transpiler.first_values import server_startup
from paddle.fluid.transpiler.global_norm import clip_on_trainers, norm_groups
from paddle.fluid.transpiler.placement import Placed, optimizing, params_and_grads, place
from paddle.fluid.transpiler.separation import check_apart, watching, whole_params
from paddle.fluid.transpiler.server_side import server_program
from paddle.fluid.transpiler.trainer_side import prefetch_rows, prefetchable
from paddle.fluid.transpiler.whereabouts import VarsDistributed, overview_of, served_variables
from paddle.signatures import explained

_P = ParamSpec("_P")
_R = TypeVar("_R")

_UPDATES = ("optimize_ops", "params_grads")
_FIRST = ("trainer_id", "program", "pservers", "trainers")
_ORDERS = {
    4: (*_FIRST, "split_method", "sync_mode"),
    5: (*_FIRST, "slice_var_up", "split_method", "sync_mode"),
}
"""Position of the class that places parameters -> the arguments' order: 0.12 and 0.13, then 0.14."""


def _takes_old_calls(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the method wrapped so that it also accepts the arguments of older versions."""

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        transpiler, *given = args
        for name in _UPDATES:
            named.pop(name, None)
        if given and isinstance(given[0], (list, tuple)):
            given = given[2:]  # the result of `minimize`, which the program contains as well
            order = _ORDERS[4]
        else:
            order = next(
                (_ORDERS[at] for at, each in enumerate(given) if at in _ORDERS and isinstance(each, type)), ()
            )
        if order:
            named |= dict(zip(order, given, strict=False))
            given = []
        return method(transpiler, *given, **named)

    return call


class DistributeTranspiler:
    """Rewrites a training program into programs for trainers and for parameter servers."""

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        """Create a transpiler.

        Raises:
            FluidError: min_block_size is less than 8192, split_method is not a dispatcher class, or mode is unknown.
        """
        self.config = config or DistributeTranspilerConfig()
        self.vars_overview = VarsDistributed()
        self.param_grad_ep_mapping: dict[str, dict[str, list[str]]] = {}
        self.sync_mode = True
        self.pserver_endpoints: list[str] = []
        self.has_distributed_lookup_table = False
        self.table_name: str | None = None
        self._tables: list[growing.GrowingTable] = []
        self._placed: list[Placed] = []
        self._unseen: list[str] = []  # servers whose ports have not been waited for
        self._check(self.config)

    @_takes_old_calls
    @explained
    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: int | str = 1,
        sync_mode: bool = True,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
        slice_var_up: bool | None = None,
        split_method: type[PSDispatcher] | None = None,
    ) -> None:
        """Change a program and its startup program into a trainer's programs, in place.

        Args:
            trainer_id: rank of the trainer, counted from 0; ignored on servers.
            program: the program after `minimize`; None means the default main program.
            trainers: number of trainers; in mode "nccl2", the "ip:port,ip:port" of all trainers.
            sync_mode: whether servers (in mode "nccl2", trainers) wait for all trainers in every step.
            startup_program: program that initializes the parameters; None means the default startup program.
            slice_var_up: old form of the setting with this name.

        Calls of 0.11 to 0.14 are accepted too: they pass the updates first, and settings as positional arguments.

        Raises:
            FluidError: an argument or the program is unsuitable; the message gives the reason.
        """
        program = program or default_main_program()
        startup = startup_program or default_startup_program()
        if self.config.mode == "nccl2":
            self.sync_mode = _is_synchronous(sync_mode, self.config.sync_mode)
            transpile_collective(
                self.config, trainer_id, program, trainers, startup, current_endpoint, self.sync_mode
            )
            return
        if isinstance(trainers, str) or not hasattr(trainers, "__index__"):
            raise FluidError(f"trainers: expected a number in pserver mode, got {trainers!r}: use int(...)")
        if not hasattr(trainer_id, "__index__"):
            raise FluidError(f"trainer_id: expected a number, got {trainer_id!r}")
        if trainers < 1:
            raise FluidError(f"trainers: expected at least 1 trainer, got {trainers}")
        job = JobEnvironment.read()
        if job.job_id and job.num_trainers not in (None, trainers):
            raise FluidError(
                f"trainers: got {trainers}, but the job has {job.num_trainers}, so servers would wait for others or "
                'ignore some: pass int(os.environ["PADDLE_TRAINERS_NUM"])'
            )
        if not isinstance(pservers, str) or not pservers.strip(", "):
            raise FluidError(
                f"pservers: expected endpoints in a string, such as '10.0.0.1:6174,10.0.0.2:6174', got {pservers!r}"
            )
        self.sync_mode = _is_synchronous(sync_mode, self.config.sync_mode)
        if any(op.type in SENDING for op in program.global_block().ops):
            raise FluidError(
                "the program was transpiled before, and would send its gradients twice: transpile a program once, "
                "and build it again for another transpiler"
            )
        if any(op.type == "dgc" for op in program.global_block().ops):
            raise FluidError(
                "DGCMomentumOptimizer trains without servers: use MomentumOptimizer, or a config with mode='nccl2'"
            )
        if self.config.enable_dc_asgd and self.sync_mode:
            raise FluidError("enable_dc_asgd applies to asynchronous training only: pass sync_mode=False")
        self.trainer_id, self.trainer_num = trainer_id, int(trainers)
        self.pserver_endpoints = [each.strip() for each in pservers.split(",") if each.strip()]
        check_endpoints(self.pserver_endpoints, "pservers: endpoint", first_port=0)
        self._unseen = list(self.pserver_endpoints)
        self.origin_program, self.startup_program = program, startup
        self._origin, self._origin_startup = program.clone(), startup.clone()
        cutting = self.config.slice_var_up if slice_var_up is None else slice_var_up
        self._place(cutting, (split_method or self.config.split_method or RoundRobin)(self.pserver_endpoints))
        self._note(program, current_endpoint)
        self._rewrite()

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """Return the trainer's program, without updates; it is the program object that was transpiled.

        Args:
            wait_port: whether to wait first, without a limit, until every server listens; missing servers are logged at
                intervals. The trainer's deadlines start after this wait; False means they start with its first run.

        Raises:
            FluidError: nothing was transpiled, or the trainer ID is out of range.
            ConfigError: an endpoint has port 0, to which no trainer can connect.
        """
        if not self.pserver_endpoints:
            raise FluidError("call transpile with the addresses of servers before get_trainer_program")
        if not 0 <= self.trainer_id < self.trainer_num:
            raise FluidError(
                f"trainer_id: expected 0 to {self.trainer_num - 1} for {self.trainer_num} trainers, "
                f"got {self.trainer_id!r}: pass the number of this trainer to transpile"
            )
        trainer_side.remove_updates(self.origin_program)
        if wait_port and self.config.wait_port and self._unseen:
            wait_for_ports(self._unseen)
            self._unseen = []
        return self.origin_program

    def get_pserver_program(self, endpoint: str) -> Program:
        """Return the program of the server at an endpoint.

        Raises:
            FluidError: the endpoint is not one of the servers'.
        """
        self._check_endpoint(endpoint)
        PROMISES.make(endpoint, self, self.trainer_num)
        program = server_program(
            self._origin.global_block(),
            endpoint,
            self._placed,
            self._updates,
            self._rates,
            self.trainer_num,
            self.sync_mode,
            self.config.enable_dc_asgd,
            self._tables,
            self.pserver_endpoints,
            self._norms,
        )
        self._mark(program, endpoint)
        return program

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """Return the program and the startup program of the server at an endpoint."""
        program = self.get_pserver_program(endpoint)
        return program, self.get_startup_program(endpoint, program)

    def get_startup_program(
        self, endpoint: str, pserver_program: Program | None = None, startup_program: Program | None = None
    ) -> Program:
        """Return the startup program of the server at an endpoint, which sets its variables' initial values.

        Args:
            pserver_program: the server's main program; None means it is created.
            startup_program: ignored.
        """
        server = pserver_program or self.get_pserver_program(endpoint)
        return server_startup(
            self._origin_startup, server, self._placed, self._updates, endpoint, self._names_of_tables()
        )

    def _check(self, config: DistributeTranspilerConfig) -> None:
        if config.min_block_size < 8192:
            raise FluidError(f"min_block_size: expected 8192 or more, got {config.min_block_size}")
        method = config.split_method
        if method is not None and not (isinstance(method, type) and issubclass(method, PSDispatcher)):
            raise FluidError(f"split_method: expected a subclass of PSDispatcher, got {method!r}")
        if config.mode not in ("pserver", "nccl2"):
            raise FluidError(f"mode: expected 'pserver' or 'nccl2', got {config.mode!r}")
        if config.table_rule not in ("sgd", "own"):
            raise FluidError(f"table_rule: expected 'sgd' or 'own', got {config.table_rule!r}")
        steps: object = config.k_steps
        if isinstance(steps, bool) or not isinstance(steps, Integral) or config.k_steps < 1:
            raise FluidError(f"k_steps: expected 1 or more steps between averages, got {steps!r}")
        if config.k_steps > 1 and config.mode == "pserver":
            raise FluidError(
                f"k_steps is {config.k_steps}, but parameter servers do not average parameters: use "
                "mode='nccl2', or omit k_steps"
            )
        if config.enable_dc_asgd and config.mode == "nccl2":
            raise FluidError(
                "enable_dc_asgd is a correction on parameter servers, which mode 'nccl2' does not use: omit it"
            )

    def _check_endpoint(self, endpoint: str) -> None:
        if endpoint not in self.pserver_endpoints:
            raise FluidError(f"{endpoint!r} is not one of the servers: {', '.join(self.pserver_endpoints)}")

    def _place(self, cutting: bool, dispatcher: PSDispatcher) -> None:
        """Determine the update operators, and the server of each slice."""
        block = self._origin.global_block()
        watched = watching(block, optimizing(block))
        self._watching = trainer_side.keep_watching(self.origin_program, watched)
        block.ops = [op for op in block.ops if op not in watched]
        self._updates = optimizing(block)
        pairs = params_and_grads(self._updates)
        self._tables = growing.growing_tables(self._origin, self._origin_startup, pairs)
        names = self._names_of_tables()
        self.has_distributed_lookup_table = bool(names)
        self.table_name = next(iter(names), None)
        pairs = {param: grad for param, grad in pairs.items() if param not in names}
        if self.config.table_rule == "own":
            self._tables = [
                growing.own_rule(each, names, self._updates, self._origin_startup) for each in self._tables
            ]
        self._rates = trainer_side.learning_rate_ops(block, self._updates)
        groups = norm_groups(self._updates)
        if groups and not (self.sync_mode and self.trainer_num > 1):
            clip_on_trainers(self.origin_program, groups)
            clip_on_trainers(self._origin, groups)
            self._updates = optimizing(block)
            pairs = {param: grad for param, grad in params_and_grads(self._updates).items() if param in pairs}
            groups = []
        self._norms = groups
        self._placed = place(
            block,
            pairs,
            dispatcher,
            len(self.pserver_endpoints) if cutting else 1,
            self.config.min_block_size,
            f".trainer_{self.trainer_id}" if self.sync_mode and self.trainer_num > 1 else "",
            None if cutting else self.origin_program.random_seed,
            whole_params(block, self._updates, groups),
        )
        check_apart(
            block, {each.param: each.grad for each in self._placed}, self._updates, self._rates, self._norms
        )
        self._prefetched = prefetchable(self.origin_program, [each.param for each in self._placed])

    def _rewrite(self) -> None:
        """Change the program and its startup program into those of a trainer."""
        endpoints, trainer_id, main = (
            self.pserver_endpoints,
            self.trainer_id,
            self.origin_program.global_block(),
        )
        fetched = [each.param for each in self._placed if each.param not in self._prefetched]
        sent = []
        for table in self._tables:
            growing.rewrite_lookups(main, table, endpoints, trainer_id)
            sent.append(growing.send_gradient(main, table, endpoints, trainer_id, self.sync_mode))
        trainer_side.rewrite_main(
            self.origin_program,
            self._placed,
            fetched,
            endpoints,
            trainer_id,
            self.sync_mode,
            sent,
            self._norms,
            self._watching,
        )
        for each in self._placed:
            if each.param in self._prefetched:
                prefetch_rows(main, each, trainer_id)
        trainer_side.rewrite_startup(self.startup_program, self._placed, endpoints, trainer_id)
        for table in self._tables:
            growing.rewrite_startup(self.startup_program, table)

    def _note(self, program: Program, current_endpoint: str) -> None:
        """Record the location of all variables on the program and in this object."""
        program._is_distributed = True
        program._endpoints = list(self.pserver_endpoints)
        program._ps_endpoint = current_endpoint
        program._is_chief = self.trainer_id == 0
        program._distributed_lookup_tables = {each.name: each.rule_line for each in self._tables}
        self.param_grad_ep_mapping = {each: {"params": [], "grads": []} for each in self.pserver_endpoints}
        for placed in self._placed:
            for one in placed.slices:
                self.param_grad_ep_mapping[one.endpoint]["params"].append(one.param.name)
                self.param_grad_ep_mapping[one.endpoint]["grads"].append(one.sent)
        updating = [
            each
            for each in self.pserver_endpoints
            if self._tables or self.param_grad_ep_mapping[each]["params"]
        ]
        self.vars_overview = overview_of(
            self._origin.global_block(), self._placed, self._prefetched, self._updates, self._rates, updating
        )
        program._parameters_on_pservers = self.vars_overview
        served = served_variables(
            self.vars_overview,
            self._origin.global_block(),
            self._updates,
            self._names_of_tables(),
            self.pserver_endpoints,
        )
        place = Distribution(self.trainer_id, self.trainer_num, served.endpoints, self.sync_mode)
        program._connections = (Connection(place, served),)
        # Several programs may share it, each with its own servers.
        self.startup_program._connections += program._connections

    def _names_of_tables(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._tables)

    def _mark(self, program: Program, endpoint: str) -> None:
        program._is_distributed = True
        program._endpoints = list(self.pserver_endpoints)
        program._ps_endpoint = endpoint
        program._distributed_lookup_tables = {each.name: each.rule_line for each in self._tables}
        program._parameters_on_pservers = self.vars_overview


def _is_synchronous(*said: object) -> bool:
    """Return whether trainers wait for each other: True unless an argument is False; None does not count."""
    for each in said:
        if each is not None and (isinstance(each, str) or each not in (True, False)):
            raise FluidError(f"sync_mode: expected True or False, got {each!r}")
    return all(each is None or each for each in said)
