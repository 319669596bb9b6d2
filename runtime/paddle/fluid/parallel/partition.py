# SPDX-License-Identifier: Apache-2.0
"""Partition: divides a program's operators into passes, which each place runs, and updates, which run once.

Gradients are summed over the places between the two. Operators that a script applies to gradients, such as its own
clipping, are updates, so that they get the sums. Operators that a script applies to updated parameters (such as bounds
on weights) or to rates of a schedule are updates as well. All other values that updates need from a pass, such as a
copy of a parameter, are equal on all places, and are taken from the first one.

All passes run before all updates. A value that a pass computes from a parameter after its update, as with a second
loss, is outdated. `rest_at` finds where to cut a program so that the rest runs after these updates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from paddle.fluid.program.operator import Operator, OpRole
from paddle.graph.operator import EMPTY
from paddle_node.contract.classes import NamedTuple, dataclass

_SERVED = (OpRole.RPC, OpRole.DIST)
_ONCE = (OpRole.OPTIMIZE, OpRole.LR_SCHED, OpRole.LR_SCHED | OpRole.OPTIMIZE)
_UPDATING = (*_ONCE, *_SERVED)

_LINEAR = ("elementwise_add_grad", "elementwise_sub_grad", "lookup_table_grad")
_BILINEAR = ("mul_grad", "matmul_grad", "elementwise_mul_grad", "conv2d_grad")
"""Operators that compute the gradient of an input without its value: from no input, or from the other one."""

_RECORDS_ARRAYS = ("batch_norm", "dropout", "gru", "layer_norm", "lstm", "softmax_with_cross_entropy")
"""Operators whose intermediate outputs are arrays."""


@dataclass(frozen=True)
class Partition:
    """A program's operators in two parts, and the variables that these share, sorted by name.

    Attributes:
        passes: operators that each place runs, including those that fetch the rows of its batch from servers, and
            schedules whose values its layers read.
        updates: operators that run once, including those that send to servers.
        gradients: variables that are summed over places: those that updates need, and all gradients of parameters.
        given: variables of a pass that updates need, and that are equal on all places.
        kept: variables that persist between steps, and that a pass writes.
        outdated: variables of a pass that the program computes from values of updates before it.
    """

    passes: list[Operator]
    updates: list[Operator]
    gradients: list[str]
    given: list[str]
    kept: list[str]
    outdated: Mapping[str, Outdated]


class Outdated(NamedTuple):
    """A variable that a pass computes from another variable before that variable's update instead of after it.

    Attributes:
        source: the updated variable.
        updated_by: the loss whose backward pass the update follows; "" if none.
        loss: the last loss whose backward pass has started when the variable is computed; "" if none.
    """

    source: str
    updated_by: str
    loss: str


def partition(ops: Sequence[Operator], is_kept: Callable[[str], bool]) -> Partition:
    """Divide the operators of a block into passes and updates.

    Args:
        is_kept: whether a variable persists between steps.
    """
    passing = _passing(ops, is_kept)
    updates = [op for op, passes in zip(ops, passing, strict=True) if not passes]
    passes = [op for op, passes in zip(ops, passing, strict=True) if passes]
    derived = _derived(passes, {name for op in passes if _is_backward(op) for name in op.writes})
    computed = {name for op in passes for name in op.writes}
    shared = computed & {name for op in updates for name in op.reads}
    of_params = {name for op in passes if _is_backward(op) for name in op.role_vars[1::2]}
    gradients = derived & (shared | computed & of_params)
    return Partition(
        passes,
        updates,
        sorted(gradients),
        sorted(name for name in shared - derived if not is_kept(name)),
        sorted(name for name in computed - gradients if is_kept(name)),
        _outdated(ops, passing),
    )


def rest_at(ops: Sequence[Operator], is_kept: Callable[[str], bool]) -> int | None:
    """Return the position after the updates that a later pass needs; None if there are none, or no cut is possible.

    The rest may read arrays of the passes and updates before it, but no records of loops, and its updates must not need
    values that differ between places. Each part has its own copies of the persistent variables that its passes write,
    so neither part may read those of the other, and no update may change them.
    """
    passing = _passing(ops, is_kept)
    changed: set[str] = set()
    at = None
    for number, (op, passes) in enumerate(zip(ops, passing, strict=True)):
        if not passes:
            changed.update(op.writes)
        elif not changed.isdisjoint(_needed(op)):
            at = 1 + max(before for before in range(number) if not passing[before])
            break
    if at is None:
        return None
    rest = ops[at:]
    carried = carried_over(ops[:at], rest, is_kept)
    before = [op for op, passes in zip(ops[:at], passing, strict=False) if passes]
    of_places = {name for op in before for name in op.writes}
    if any(not carried.isdisjoint(_records(op)) for op in before):
        return None
    rest_passing = _passing(rest, is_kept)
    once = [op for op, passes in zip(rest, rest_passing, strict=True) if not passes]
    needed = {name for op in once for name in op.reads} & carried
    is_rewritten = any(not carried.isdisjoint(op.writes) for op in rest)
    again = [op for op, passes in zip(rest, rest_passing, strict=True) if passes]
    updated = changed.union(*(op.writes for op in once))
    is_stale = any(
        not of_others.isdisjoint(op.reads)
        for part, of_others in ((ops[:at], _own(again, is_kept)), (rest, _own(before, is_kept)))
        for op in part
    ) or any(is_kept(name) and name in updated for op in (*before, *again) for name in op.writes)
    return None if is_rewritten or is_stale or needed & of_places else at


def _own(passes: Sequence[Operator], is_kept: Callable[[str], bool]) -> set[str]:
    """Return persistent variables that differ between places, except statistics, which operators read and write."""
    own = (op for op in passes if op.role != OpRole.LR_SCHED)
    return {name for op in own for name in op.writes if is_kept(name) and name not in op.reads}


def _records(op: Operator) -> Iterator[str]:
    """Yield outputs whose values may not be arrays."""
    for slot in op.definition.outputs:
        if "array" in op.type or slot.optional or (slot.intermediate and op.type not in _RECORDS_ARRAYS):
            yield from op.outputs.get(slot.name, ())


def carried_over(
    before: Sequence[Operator], rest: Sequence[Operator], is_kept: Callable[[str], bool]
) -> set[str]:
    """Return the variables, other than persistent ones, that operators write and the rest of the program reads."""
    written = {name for op in before for name in op.writes if not is_kept(name)}
    return written & {name for op in rest for name in op.reads}


def _outdated(ops: Sequence[Operator], passing: Sequence[bool]) -> dict[str, Outdated]:
    found: dict[str, Outdated] = {}
    changed: dict[str, Outdated] = {}
    loss = ""
    for op, passes in zip(ops, passing, strict=True):
        if op.role == OpRole.BACKWARD | OpRole.LOSS:
            loss = op.writes[0].removesuffix("@GRAD")
        if not passes:
            changed.update((name, Outdated(name, loss, loss)) for name in op.writes)
            continue
        cause = next((each for name in _needed(op) if (each := changed.get(name) or found.get(name))), None)
        if cause is not None:
            found.update((name, cause._replace(loss=loss)) for name in op.writes)
    return found


def _needed(op: Operator) -> list[str]:
    """Return the variables whose values the operator needs; of other inputs, it needs only the shape."""
    computed = [slot for slot, names in op.outputs.items() if {*names} != {EMPTY}]
    unneeded: list[str] = []
    if op.type in _LINEAR:
        unneeded = ["X", "Y", "W"]
    elif op.type in _BILINEAR and len(computed) == 1:
        unneeded = [computed[0].removesuffix("@GRAD")]
    return [name for slot, names in op.inputs.items() if slot not in unneeded for name in names]


def _derived(ops: Sequence[Operator], roots: Collection[str]) -> set[str]:
    """Return the root variables and all variables that passes compute from them."""
    derived = {*roots}
    for op in ops:
        if op.role not in _UPDATING and not derived.isdisjoint(op.reads):
            derived.update(op.writes)
    return derived


def _passing(ops: Sequence[Operator], is_kept: Callable[[str], bool]) -> list[bool]:
    """Return for each operator whether each place runs it."""
    of_params = _derived(ops, {name for op in ops if _is_backward(op) for name in op.role_vars[1::2]})
    following = _following(ops, is_kept, of_params)
    read: set[str] = set()
    passing = []
    for op, follows in zip(reversed(ops), reversed(following), strict=True):
        made = {name for name in op.writes if op.role == OpRole.LR_SCHED or not is_kept(name)}
        passes = op.role not in _UPDATING and (_is_backward(op) or of_params.isdisjoint(op.reads))
        passes = passes and not follows
        if not passes and not op.role & OpRole.OPTIMIZE:
            passes = bool(op.role & OpRole.LOSS) or not read.isdisjoint(made)
        if passes:
            read.update(op.reads)
        passing.append(passes)
    return passing[::-1]


def _following(ops: Sequence[Operator], is_kept: Callable[[str], bool], of_params: set[str]) -> list[bool]:
    """Return for each operator whether it reads a value that an earlier update wrote, and no data of a batch."""
    made: set[str] = set()
    of_batch: set[str] = set()
    changed: set[str] = set()
    following = []
    for op in ops:
        uses_batch = any(not is_kept(name) and (name not in made or name in of_batch) for name in op.reads)
        follows = not (op.role or uses_batch or changed.isdisjoint((*op.reads, *op.writes)))
        if follows or op.role in _ONCE or not (_is_backward(op) or of_params.isdisjoint(op.reads)):
            changed.update(op.writes)
        if uses_batch and op.role != OpRole.OPTIMIZE:
            of_batch.update(op.writes)
        made.update(op.writes)
        following.append(follows)
    return following


def _is_backward(op: Operator) -> bool:
    return bool(op.role & OpRole.BACKWARD)
