# SPDX-License-Identifier: Apache-2.0
"""Program: the core's program, with operator roles and the state of distributed training.

Layers add operators to the default programs: the main program, and the startup program for initial values. name_scope
groups operators for display; an operator's `op_namescope` is a path such as `/encoder/layer_1/`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ClassVar, Self, cast
from weakref import WeakSet

from paddle import graph
from paddle.fluid.errors import FluidError, FluidTypeError
from paddle.fluid.files import program_file
from paddle.fluid.program.block import Block
from paddle.fluid.program.descriptions import ProgramDesc
from paddle.fluid.program.operator import Operator, OpRole
from paddle.graph.block import Name
from paddle.signatures import explained

_TRAINING = OpRole.BACKWARD | OpRole.OPTIMIZE | OpRole.RPC | OpRole.DIST | OpRole.LR_SCHED
# Attributes that a transpiler sets on a program; clones have them too.
_DISTRIBUTED = (
    "_is_distributed",
    "_is_chief",
    "_parameters_on_pservers",
    "_endpoints",
    "_ps_endpoint",
    "_trainer_id",
    "_trainers_endpoints",
    "_averaging",
    "_distributed_lookup_tables",
    "_connections",
    "_nccl_comm_num",
    "_use_hierarchical_allreduce",
    "_hierarchical_allreduce_inter_nranks",
    "_hierarchical_allreduce_exter_nranks",
    "_pipeline_opt",
)


PROGRAMS: WeakSet[Program] = WeakSet()


class Program(graph.Program):
    """A computation as operators and variables in nested blocks; layers add to `fluid.default_main_program()`."""

    block_class: ClassVar[type[graph.Block]] = Block

    def __init__(self) -> None:
        super().__init__()
        PROGRAMS.add(self)
        self._current_role: int = OpRole.FORWARD
        self._op_role_var: Sequence[str] = ()
        self._is_distributed = False
        self._is_chief = False
        self._parameters_on_pservers: object = None
        self._endpoints: list[str] = []
        self._ps_endpoint: str | None = None
        self._trainer_id = 0
        self._trainers_endpoints: list[str] = []
        self._averaging: object = None
        self._distributed_lookup_tables: Mapping[str, str] = {}  # name -> `rule_line`
        self._connections: tuple[object, ...] = ()
        self._nccl_comm_num = 1
        self._use_hierarchical_allreduce = False
        self._hierarchical_allreduce_inter_nranks = 0
        self._hierarchical_allreduce_exter_nranks = 0
        self._is_mem_optimized = False
        self._pipeline_opt: Mapping[str, Any] | None = None
        self._is_test = False  # a copy for tests
        self._test_updates = False  # such a copy that updates parameters

    @property
    def _distributed_lookup_table(self) -> str | None:
        """The first distributed embedding, or None. In the original, programs have at most one."""
        return next(iter(self._distributed_lookup_tables), None)

    @property
    def op_context(self) -> tuple[int, tuple[str, ...], str]:
        """Return the role, role variables and name scope of newly appended operators."""
        return int(self._current_role), tuple(self._op_role_var), _path.get()

    @property
    def desc(self) -> ProgramDesc:
        """Return the program's description, with the methods of the original's core."""
        return ProgramDesc(self)

    @property
    def num_blocks(self) -> int:
        """The number of blocks."""
        return len(self.blocks)

    def global_block(self) -> Block:
        """Return block 0, the outermost block."""
        return cast(Block, super().global_block())

    def block(self, index: int) -> Block:
        """Return the block with this index."""
        return cast(Block, super().block(index))

    def current_block(self) -> Block:
        """Return the block to which layers append operators."""
        return cast(Block, super().current_block())

    def clone(self, for_test: bool = False) -> Self:
        """Return an independent copy; see the core's `Program.clone`. Make a test copy before calling `minimize`.

        No operators are removed from a test copy, except that the copy of a trainer's transpiled program has only the
        forward pass.
        """
        copy = super().clone(for_test)
        for name in _DISTRIBUTED:
            setattr(copy, name, getattr(self, name))
        copy._is_mem_optimized = self._is_mem_optimized
        if for_test and (self._is_distributed or self._trainers_endpoints):
            copy._remove_training()
        elif for_test:
            copy._test_updates = any(
                isinstance(op, Operator) and op.role == OpRole.OPTIMIZE for op in copy.global_block().ops
            )
        copy._is_test = for_test or self._is_test
        return copy

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Format all blocks as readable text."""
        texts = [self.block(idx).to_string(throw_on_error, with_details) for idx in range(len(self.blocks))]
        return "\n".join(texts)

    def serialize_to_string(self) -> bytes:
        """Serialize the program as the original's ProgramDesc message."""
        return program_file.to_bytes(self)

    @staticmethod
    def parse_from_string(binary_str: bytes) -> Program:
        """Parse a ProgramDesc message; return the program, in which parameters become persistable variables."""
        program = Program()
        program_file.read_into(program, binary_str)
        return program

    def __str__(self) -> str:
        return self.to_string()

    def _create_block(self, parent_idx: int | None = None) -> Block:
        return cast(Block, self.create_block(parent_idx))

    def _rollback(self) -> None:
        self.rollback()

    def _prune(self, targets: Sequence[Name] | Name) -> Self:
        return self.prune([targets] if isinstance(targets, (str, graph.Variable)) else targets)

    def _inference_optimize(self, prune_read_op: bool = True) -> Self:
        """Return a copy for inference; without the operator that reads batches if `prune_read_op`."""
        copy = self.clone(for_test=True)
        block = copy.global_block()
        if prune_read_op:
            block.ops = [op for op in block.ops if op.type != "read"]
        copy.touch()
        return copy

    inference_optimize = _inference_optimize

    def _get_desc(self) -> ProgramDesc:
        return self.desc

    def _version(self) -> int:
        return self.version

    def _sync_with_cpp(self) -> None:
        """Do nothing, because a program has only one description."""

    def _remove_training(self) -> None:
        """Keep the operators that compute from data and parameters, and those that fetch table rows for them."""
        block, kept, read = self.global_block(), [], set[str]()
        for op in reversed(block.ops):
            role = op.role if isinstance(op, Operator) else 0
            fetches = role in (OpRole.RPC, OpRole.DIST) and not read.isdisjoint(op.writes)
            if fetches or not role & _TRAINING:
                kept.append(op)
                read.update(op.reads)
        block.ops = kept[::-1]
        self.touch()

    @contextmanager
    def _optimized_guard(self, param_and_grads: Sequence[Name]) -> Iterator[None]:
        """Mark operators appended within the context as the update of this parameter with this gradient."""
        names = tuple(each if isinstance(each, str) else each.name for each in param_and_grads)
        with self._in_role(OpRole.OPTIMIZE, names):
            yield

    @contextmanager
    def _lr_schedule_guard(self, is_with_opt: bool = False) -> Iterator[None]:
        """Mark operators appended within the context as part of the learning rate's schedule."""
        with self._in_role(OpRole.LR_SCHED | (OpRole.OPTIMIZE if is_with_opt else 0), ()):
            yield

    @contextmanager
    def _backward_role_guard(self) -> Iterator[None]:
        """Mark operators appended within the context as part of the backward pass."""
        with self._in_role(OpRole.BACKWARD, ()):
            yield

    # Before 1.0, these names had no underscore.
    optimized_guard, lr_schedule_guard = _optimized_guard, _lr_schedule_guard

    @contextmanager
    def _in_role(self, role: int, role_vars: tuple[str, ...]) -> Iterator[None]:
        before = self._current_role, self._op_role_var
        self._current_role, self._op_role_var = int(role), role_vars
        try:
            yield
        finally:
            self._current_role, self._op_role_var = before


_path: ContextVar[str] = ContextVar("paddle_name_scope", default="/")  # "/" is outside all scopes
_children: dict[str, Counter[str]] = {}


@contextmanager
def name_scope(prefix: str) -> Iterator[None]:
    """Enter a name scope; a second scope with the same prefix at the same level is called `prefix_1`.

    Raises:
        FluidError: the prefix is empty.
    """
    if not prefix:
        raise FluidError("name_scope: expected a name, got an empty string")
    outer = _path.get()
    seen = _children.setdefault(outer, Counter())
    number = seen[prefix]
    seen[prefix] += 1
    token = _path.set(f"{outer}{prefix}{f'_{number}' if number else ''}/")
    try:
        yield
    finally:
        _path.reset(token)


_main: ContextVar[Program] = ContextVar("paddle_main_program")
_startup: ContextVar[Program] = ContextVar("paddle_startup_program")


def default_main_program() -> Program:
    """Return the default main program, to which layers add operators."""
    return _of(_main)


def default_startup_program() -> Program:
    """Return the default startup program, which gives parameters their initial values."""
    return _of(_startup)


def switch_main_program(program: Program) -> Program:
    """Replace the default main program; return the previous one."""
    return _switch(_main, program)


def switch_startup_program(program: Program) -> Program:
    """Replace the default startup program; return the previous one."""
    return _switch(_startup, program)


@contextmanager
def program_guard(main_program: Program, startup_program: Program | None = None) -> Iterator[None]:
    """Return a context in which the given programs are the default programs.

    Raises:
        FluidTypeError: an argument is not a Program.
    """
    for what, program in (("main_program", main_program), ("startup_program", startup_program)):
        if not isinstance(program, Program) and not (what == "startup_program" and program is None):
            raise FluidTypeError(f"program_guard: {what} must be a Program, got {program!r}")
    main = switch_main_program(main_program)
    startup = switch_startup_program(startup_program) if startup_program is not None else None
    try:
        yield
    finally:
        switch_main_program(main)
        if startup is not None:
            switch_startup_program(startup)


def with_programs(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer that also takes the keywords main_program and startup_program, as in Fluid 0.11."""

    layer = explained(layer)

    @wraps(layer)
    def call(
        *args: Any, main_program: Program | None = None, startup_program: Program | None = None, **named: Any
    ) -> Any:
        if main_program is None and startup_program is None:
            return layer(*args, **named)
        with program_guard(main_program or default_main_program(), startup_program):
            return layer(*args, **named)

    return call


def _of(variable: ContextVar[Program]) -> Program:
    found = variable.get(None)
    if found is None:
        found = Program()
        variable.set(found)
    return found


def _switch(variable: ContextVar[Program], program: Program) -> Program:
    before = _of(variable)
    variable.set(program)
    return before
