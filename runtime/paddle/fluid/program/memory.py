# SPDX-License-Identifier: Apache-2.0
"""memory_optimize and release_memory: reduce the memory that a program needs without changing its results.

The executor frees an array after its last use, and reuses free arrays for results. The remaining memory is mostly that
of gradients, which wait for the updates at the end. Updates are therefore moved as early as possible. memory_optimize
also shows later gradients under the names of dead ones, as scripts expect. Execution uses the variables' own names, so
fetched values do not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from paddle.fluid.errors import FluidError
from paddle.fluid.program.operator import OP_ROLE, Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Variable, VarType
from paddle.graph.block import Name

_Names = Collection[Name] | None


def memory_optimize(
    input_program: Program,
    skip_opt_set: _Names = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """Move updates ahead, and rename activation gradients to dead ones of the same dtype and shape.

    Every variable can still be fetched. If gradients are clipped by their global norm, which needs all of them, no
    update is moved.

    Args:
        input_program: program to change in place. It must not be a parameter server's; a trainer's must not be
            transpiled yet.
        skip_opt_set: variables that keep their names and whose names are not reused; their updates are not moved.
        print_log: ignored.
        level: 0 or 1, which are equivalent: shapes must be equal. (In the original, level 1 also allows a smaller
            shape.)
        skip_grads: ignored: gradients that updates read, which may be sent, always keep their names.

    Raises:
        FluidError: level is neither 0 nor 1, or skip_opt_set is not a set.
    """
    if level not in (0, 1):
        raise FluidError(f"memory_optimize: level must be 0 or 1, got {level}")
    kept = _skipped(skip_opt_set)
    ops = _moved_ahead([op.under_own_names() for op in _operators(input_program)], kept)
    _lend(input_program, ops, kept)
    input_program._is_mem_optimized = True


def release_memory(input_program: Program, skip_opt_set: _Names = None) -> None:
    """Move updates ahead, and insert a delete_var operator after each variable's last use.

    Args:
        skip_opt_set: variables that are not deleted, and whose updates are not moved.

    Raises:
        FluidError: skip_opt_set is not a set.
    """
    kept = _skipped(skip_opt_set)
    block = input_program.global_block()
    ops = _moved_ahead(_operators(input_program), kept)
    last = {name: at for at, op in enumerate(ops) for name in (*op.reads, *op.writes)}
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
    return {name for each in program.blocks[1:] for op in each.ops for name in (*op.reads, *op.writes)}


def _is_temporary(variable: object) -> bool:
    return (
        isinstance(variable, Variable)
        and not variable.persistable
        and not variable.is_data
        and variable.type == VarType.LOD_TENSOR
    )


def _lend(program: Program, ops: Sequence[Operator], kept: Collection[str]) -> None:
    """Replace the program's operators by the given ones, with the names of dead gradients reused for later ones."""
    block = program.global_block()
    free = _only_in_backward(ops) - _inner_names(program) - {*kept}
    free = {name for name in free if _is_temporary(block.vars.get(name))}
    last = {name: at for at, op in enumerate(ops) for name in (*op.reads, *op.writes)}
    lent: dict[str, str] = {}
    pool: list[str] = []
    block.ops = []
    for at, op in enumerate(ops):
        for name in op.writes:
            alike = (dead for dead in pool if _alike(block.vars[dead], block.vars[name]))
            twin = next(alike, None) if name in free else None
            if twin is not None:
                pool.remove(twin)
                lent[name] = twin
        block.ops.append(op.shown_as(lent))
        for name in dict.fromkeys((*op.reads, *op.writes)):
            if last[name] == at and name in free:
                pool.append(lent.get(name, name))
    program.touch()


def _only_in_backward(ops: Sequence[Operator]) -> set[str]:
    """Return the variables that one backward operator writes, and that only the backward pass reads."""
    writes = Counter(name for op in ops for name in op.writes)
    found = {name for op in ops if op.role == OpRole.BACKWARD for name in op.writes if writes[name] == 1}
    for op in ops:
        found.difference_update(op.role_vars)
        if op.role != OpRole.BACKWARD:
            found.difference_update(op.reads)
    return found


def _alike(left: object, right: object) -> bool:
    assert isinstance(left, Variable)
    assert isinstance(right, Variable)
    return left.spec == right.spec and left.stop_gradient == right.stop_gradient


def _skipped(given: _Names) -> set[str]:
    if given is None:
        return set()
    if isinstance(given, str) or not isinstance(given, Collection):
        raise FluidError(f"skip_opt_set: expected a set or a list of variables or names, got {given!r}")
    return {each if isinstance(each, str) else each.name for each in given}


def _moved_ahead(ops: Sequence[Operator], kept: Collection[str]) -> list[Operator]:
    """Return the operators with each update as early as possible.

    Args:
        ops: of one block, in order.
        kept: an update that reads or writes one of these is not moved ahead of any operator.
    """
    result: list[Operator] = []
    for op in ops:
        if op.role == OpRole.OPTIMIZE and not _touches(op, kept):
            result.insert(_first_place(result, op), op)
        else:
            result.append(op)
    return result


def _first_place(before: Sequence[Operator], op: Operator) -> int:
    reads, writes = set(op.reads), set(op.writes)
    for place in range(len(before), 0, -1):
        other = before[place - 1]
        written = set(other.writes)
        if written & reads or written & writes or writes.intersection(other.reads):
            return place
    return 0


def _touches(op: Operator, names: Collection[str]) -> bool:
    return any(name in names for name in (*op.reads, *op.writes))
