# SPDX-License-Identifier: Apache-2.0
"""append_backward: appends the operators that compute the gradients of a loss (automatic differentiation).

The gradient of `x` is the variable `x@GRAD`, see `grad_builder`. Gradients are computed only for variables on a path
from a trainable parameter, or from another variable without stop_gradient, to the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import prod

import numpy as np

from paddle.graph.block import Block, Name
from paddle.graph.errors import BackwardError
from paddle.graph.grad_builder import Builder
from paddle.graph.operator import Operator, OpRole
from paddle.graph.variable import Parameter, Variable
from paddle.ops.base.registry import lookup


def path_to(block: Block, targets: set[str]) -> list[Operator]:
    """Return the operators of a block on which the targets depend, in order.

    Update operators are excluded: a parameter that an earlier loss updated counts as a constant for a later loss.
    """
    needed = set(targets)
    path = []
    for op in reversed(block.run_ops):
        if needed.intersection(op.writes) and op.attrs.get("op_role") != OpRole.OPTIMIZE:
            path.append(op)
            needed.update(op.reads)
    return path[::-1]


def reaching(
    block: Block, path: list[Operator], sources: set[str], targets: Collection[str], excluded: set[str]
) -> set[str]:
    """Return the sources, and the variables on the path that depend on them and can have gradients.

    Operators without a gradient (comparisons, indices, functions of a shape alone) end the dependency.

    Raises:
        BackwardError: a variable is overwritten although a gradient needs its earlier value; or a target depends on a
            source through a gradient operator that has no gradient itself.
    """
    required = set(sources)
    lost: dict[str, Operator] = {}
    for op in path:
        outputs = {name for name in op.writes if allowed(block.reach(name), excluded)}
        reached = not required.isdisjoint(op.reads)
        if op.definition.gradient is not None:
            required.update(outputs if reached else ())
            before = next((lost[name] for name in op.reads if name in lost), None)
            lost.update(dict.fromkeys(outputs, before) if before is not None else ())
        elif op.type.endswith("_grad") and (reached or not lost.keys().isdisjoint(op.reads)):
            lost.update(dict.fromkeys(outputs, op))
    for name in lost.keys() & set(targets):
        raise BackwardError(
            f"{name!r} depends on operator {lost[name].describe()}, which computes a gradient but "
            "has none itself: set stop_gradient on that gradient to treat it as a constant"
        )
    for name in rewritten(path):
        _check_rewritten(path, name, required)
    return required


def rewritten(path: list[Operator]) -> set[str]:
    """Return the names of variables that are assigned more than once."""
    writes = Counter(name for op in path for name in op.writes)
    changed = {name for op in path for name in op.writes if name in op.reads}
    return changed | {name for name, count in writes.items() if count > 1}


def _check_rewritten(path: list[Operator], name: str, required: set[str]) -> None:
    writers = [position for position, op in enumerate(path) if name in op.writes]
    for position, op in enumerate(path):
        if required.isdisjoint(op.reads) or required.isdisjoint(op.writes):
            continue
        again = writers[-1] > position or (writers[-1] == position and name in op.reads)
        if again and _keeps(op, name):
            raise BackwardError(
                f"variable {name!r} is written {len(writers)} times on the path to the loss, but the "
                f"gradient of operator {op.describe()} needs an earlier value: assign each value to a "
                "different variable"
            )


def _keeps(op: Operator, name: str) -> bool:
    """Return whether the operator's gradient reads the value that the variable has when the operator runs."""
    rule = op.definition.gradient
    if not isinstance(rule, str):
        return False
    taken = {slot.name for slot in lookup(rule).inputs}
    slots = {**op.inputs, **op.outputs}
    return any(name in names for slot, names in slots.items() if slot in taken)


def allowed(variable: Variable, excluded: set[str]) -> bool:
    """Return whether a variable can have a gradient and is not excluded."""
    return not (
        variable.stop_gradient or variable.name in excluded or not np.issubdtype(variable.dtype, np.floating)
    )


def append_backward(
    loss: Variable, parameter_list: Sequence[Name] | None = None, no_grad_set: Collection[Name] | None = None
) -> list[tuple[Variable, Variable]]:
    """Append the operators that compute the gradients of a loss (reverse-mode differentiation) to the loss's block.

    Args:
        loss: a single number, of shape [1] or [].
        parameter_list: the variables of the block to differentiate with respect to, parameters or not; None means all
            trainable parameters.
        no_grad_set: variables that get no gradient and block gradients from passing through them.

    Returns:
        (parameter, gradient) pairs in the order of the list, or in the order in which the parameters were created.
        Parameters that are not trainable, or that the loss does not depend on, are left out.

    Raises:
        BackwardError: the loss is not a single number, it depends on none of the parameters, an operator on the path
            has no gradient, or a variable of the list that is not a parameter blocks gradients.
        UnknownVariableError: the block has no variable of that name.
    """
    block = loss.block
    if prod(loss.shape) != 1 or len(loss.shape) > 1:
        raise BackwardError(
            f"the loss {loss.describe()} must be one number of shape [1]: append a mean or reduce_sum to it"
        )
    path = path_to(block, {loss.name})
    listed = None if parameter_list is None else [_derivable(block, each) for each in parameter_list]
    required = _required(block, path, loss.name, _names(listed), _names(no_grad_set) or set())
    if loss.name not in required:
        of = "any trainable parameter" if listed is None else ", ".join(each.describe() for each in listed)
        raise BackwardError(
            f"the loss {loss.describe()} does not depend on {of or 'the empty parameter_list'}; minimize the mean of a "
            "cost of the network's output: an accuracy has no gradient"
        )
    builder = Builder(block, required, rewritten(path), clips_errors=True)
    builder.seed(loss)
    for op in reversed(path):
        builder.derive(op)
    every = [each for each in block.all_parameters() if each.trainable]
    wanted = {each.name: each for each in (every if listed is None else listed)}
    reached = [variable for name, variable in wanted.items() if builder.writers.get(name)]
    grads = builder.finish([variable.name for variable in reached if isinstance(variable, Parameter)])
    _mark_loss(block, loss.name)
    return [(variable, block.var(grads[variable.name])) for variable in reached]


def gradients(
    targets: Sequence[Variable],
    inputs: Sequence[Variable],
    target_gradients: Sequence[Variable | None] | None = None,
    no_grad_set: Collection[Name] | None = None,
) -> list[Variable | None]:
    """Append the operators that compute the gradients of the sum of all targets with respect to the inputs.

    Args:
        targets: variables of one block, of any shape.
        inputs: the variables to differentiate with respect to; their stop_gradient is ignored.
        target_gradients: the gradients of the targets; None means ones.

    Returns:
        The gradient of each input, None where no target depends on it.
    """
    block = targets[0].block
    wanted = {variable.name for variable in inputs}
    path = path_to(block, {target.name for target in targets})
    required = reaching(
        block, path, wanted, [target.name for target in targets], _names(no_grad_set) or set()
    )
    builder = Builder(block, required, rewritten(path))
    for target, given in zip(targets, target_gradients or [None] * len(targets), strict=True):
        builder.start(target, given)
    for op in reversed(path):
        builder.derive(op)
    grads = builder.finish([])
    return [block.var(grads[each.name]) if builder.writers.get(each.name) else None for each in inputs]


def _required(
    block: Block, path: list[Operator], loss: str, only: set[str] | None, excluded: set[str]
) -> set[str]:
    """Return the names of the variables on the path that need a gradient: those that depend on a source."""
    writes = Counter(name for op in path for name in op.writes)
    sources = {
        name
        for op in path
        for name in op.reads
        if not writes[name]
        and allowed(block.reach(name), excluded)
        and not (only is not None and _left_out(block.reach(name), only))
    }
    sources.update(
        name
        for op in path
        for name in op.writes
        if name in (only or ()) and allowed(block.reach(name), excluded)
    )
    return reaching(block, path, sources, [loss], excluded)


def _derivable(block: Block, asked: Name) -> Variable:
    """Return a variable after checking that it can have a gradient.

    Raises:
        BackwardError: it cannot have a gradient.
    """
    variable = block.reach(asked if isinstance(asked, str) else asked.name)
    if not isinstance(variable, Parameter) and not allowed(variable, set()):
        what = f"parameter_list: {variable.describe()} cannot have a gradient"
        if not np.issubdtype(variable.dtype, np.floating):
            raise BackwardError(f"{what}: only floating-point variables have a gradient")
        raise BackwardError(f"{what}: set {variable.name}.stop_gradient = False first")
    return variable


def _left_out(variable: Variable, only: set[str]) -> bool:
    return isinstance(variable, Parameter) and variable.name not in only


def _mark_loss(block: Block, loss: str) -> None:
    for index, op in enumerate(block.ops):
        if loss in op.writes:
            block.ops[index] = op.with_attrs(op_role=int(OpRole.FORWARD | OpRole.LOSS))


def _names(members: Collection[Name] | None) -> set[str] | None:
    return None if members is None else {m if isinstance(m, str) else m.name for m in members}
