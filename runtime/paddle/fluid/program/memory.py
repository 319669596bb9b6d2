# SPDX-License-Identifier: Apache-2.0
"""memory_optimize and release_memory: programs that hold less at a time and compute the same numbers.

The executor frees an array after its last reader, and puts results into arrays that are free. What holds most are
then the gradients, which wait for the updates at the end: these come as early as they can. memory_optimize lets
variables that are dead lend their names to later ones too, as scripts expect to see.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from paddle.fluid.errors import FluidError
from paddle.fluid.program.operator import OP_ROLE, Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.fluid.program.var_type import VarType
from paddle.fluid.program.variable import Variable
from paddle.graph.block import Name

_Names = Collection[Name] | None


def memory_optimize(
    input_program: Program,
    skip_opt_set: _Names = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """Let updates come early, and rename variables to dead ones of the same dtype and shape.

    Variables to be fetched must be skipped. Clipping by the global norm needs all gradients at once: then nothing
    can come early.

    Args:
        input_program: changed in place; never a parameter server's, and a trainer's before it is transpiled.
        skip_opt_set: variables that keep their names, are not written over, and whose updates stay where they are.
        print_log: has no meaning.
        level: 0: shapes must be equal; 1: a smaller one fits too (treated as 0: the core's arrays have one shape).
        skip_grads: keep the names of the gradients that updates read, so that they can be sent.

    Raises:
        FluidError: level is neither 0 nor 1, or skip_opt_set is no set.
    """
    if level not in (0, 1):
        raise FluidError(f"memory_optimize: level must be 0 or 1, got {level}")
    kept = _skipped(skip_opt_set)
    ops = _moved_ahead(_operators(input_program), kept)
    if skip_grads:
        kept.update(name for op in ops if op.role == OpRole.OPTIMIZE for name in op.role_vars[1::2])
    _reuse(input_program, ops, kept)
    input_program._is_mem_optimized = True


def release_memory(input_program: Program, skip_opt_set: _Names = None) -> None:
    """Let updates come early, and say with delete_var operators where each variable is read for the last time.

    Args:
        input_program: changed in place.
        skip_opt_set: variables that are not deleted, and whose updates stay where they are.

    Raises:
        FluidError: skip_opt_set is no set.
    """
    kept = _skipped(skip_opt_set)
    block = input_program.global_block()
    ops = _moved_ahead(_operators(input_program), kept)
    last = {name: at for at, op in enumerate(ops) for name in (*op.input_names, *op.output_names)}
    gone: dict[int, list[str]] = {}
    for name, at in last.items():
        if _is_temporary(block.vars.get(name)) and name not in kept | _inner_names(input_program):
            gone.setdefault(at, []).append(name)
    block.ops = []
    for at, op in enumerate(ops):
        block.ops.append(op)
        if at in gone:
            attrs = {OP_ROLE: op.role}
            block.ops.append(block.operator_class.make("delete_var", {"X": gone[at]}, {}, attrs))
    input_program.touch()


def _operators(program: Program) -> list[Operator]:
    return [op for op in program.global_block().ops if isinstance(op, Operator)]


def _inner_names(program: Program) -> set[str]:
    return {
        name for each in program.blocks[1:] for op in each.ops for name in (*op.input_names, *op.output_names)
    }


def _is_temporary(variable: object) -> bool:
    return (
        isinstance(variable, Variable)
        and not variable.persistable
        and not variable.is_data
        and variable.type == VarType.LOD_TENSOR
    )


def _reuse(program: Program, ops: list[Operator], kept: set[str]) -> None:
    block = program.global_block()
    inner = _inner_names(program)
    writes: dict[str, int] = {}
    for op in ops:
        for name in op.output_names:
            writes[name] = writes.get(name, 0) + 1
    last = {name: at for at, op in enumerate(ops) for name in (*op.input_names, *op.output_names)}

    def free(name: str) -> bool:
        return _is_temporary(block.vars.get(name)) and writes.get(name) == 1 and name not in kept | inner

    renamed: dict[str, str] = {}
    pool: list[str] = []
    for at, op in enumerate(ops):
        outputs = [name for name in op.output_names if free(name)]
        for name in outputs:
            twin = next((dead for dead in pool if _alike(block.vars[dead], block.vars[name])), None)
            if twin is not None and name not in op.input_names:
                pool.remove(twin)
                renamed[name] = twin
        ops[at] = _with_names(op, renamed)
        for name in dict.fromkeys((*op.input_names, *op.output_names)):
            if last[name] == at and free(name):
                pool.append(renamed.get(name, name))
    block.ops = list(ops)
    for name in renamed:
        del block.vars[name]
    program.touch()


def _alike(left: object, right: object) -> bool:
    assert isinstance(left, Variable)
    assert isinstance(right, Variable)
    return left.spec == right.spec and left.stop_gradient == right.stop_gradient


def _with_names(op: Operator, renamed: dict[str, str]) -> Operator:
    def swap(slots: object) -> dict[str, tuple[str, ...]]:
        assert isinstance(slots, dict)
        return {slot: tuple(renamed.get(name, name) for name in names) for slot, names in slots.items()}

    return replace(op, inputs=swap(op.inputs), outputs=swap(op.outputs))


def _skipped(given: _Names) -> set[str]:
    if given is None:
        return set()
    if isinstance(given, str) or not isinstance(given, Collection):
        raise FluidError(f"skip_opt_set: expected a set or a list of variables or names, got {given!r}")
    return {each if isinstance(each, str) else each.name for each in given}


def _moved_ahead(ops: Sequence[Operator], kept: Collection[str]) -> list[Operator]:
    """Return the operators with each update as far ahead as it can be.

    Args:
        ops: of one block, in order.
        kept: an update that reads or writes one of these stays behind everything that was ahead of it.
    """
    result: list[Operator] = []
    for op in ops:
        if op.role == OpRole.OPTIMIZE and not _touches(op, kept):
            result.insert(_first_place(result, op), op)
        else:
            result.append(op)
    return result


def _first_place(before: Sequence[Operator], op: Operator) -> int:
    reads, writes = set(op.input_names), set(op.output_names)
    for place in range(len(before), 0, -1):
        other = before[place - 1]
        written = set(other.output_names)
        if written & reads or written & writes or writes.intersection(other.input_names):
            return place
    return 0


def _touches(op: Operator, names: Collection[str]) -> bool:
    return any(name in names for name in (*op.input_names, *op.output_names))
