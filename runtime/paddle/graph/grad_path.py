# SPDX-License-Identifier: Apache-2.0
"""Which operators and variables lie on the way of a gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np

from paddle.graph.block import Block
from paddle.graph.errors import BackwardError
from paddle.graph.operator import Operator, OpRole
from paddle.graph.variable import Variable
from paddle.ops.base.registry import lookup


def path_to(block: Block, targets: set[str]) -> list[Operator]:
    """Return the operators of a block that the targets depend on, in order.

    Updates are none of them: what a loss reads of a parameter that an earlier loss updated counts as given.
    """
    needed = set(targets)
    path = []
    for op in reversed(block.run_ops):
        if needed.intersection(op.output_names) and op.attrs.get("op_role") != OpRole.OPTIMIZE:
            path.append(op)
            needed.update(op.input_names)
    return path[::-1]


def reaching(
    block: Block, path: list[Operator], sources: set[str], targets: Collection[str], excluded: set[str]
) -> set[str]:
    """Return the sources and the variables on the path that depend on them and may have gradients.

    Operators without a gradient (comparisons, indices, values that go by a shape alone) let none through.

    Raises:
        BackwardError: one of them is written again although a gradient needs its value from before; or a target depends
            on a source through a gradient, which cannot be derived again.
    """
    required = set(sources)
    lost: dict[str, Operator] = {}
    for op in path:
        outputs = {name for name in op.output_names if allowed(block.reach(name), excluded)}
        reached = not required.isdisjoint(op.input_names)
        if op.definition.gradient is not None:
            required.update(outputs if reached else ())
            before = next((lost[name] for name in op.input_names if name in lost), None)
            lost.update(dict.fromkeys(outputs, before) if before is not None else ())
        elif reached and op.type.endswith("_grad"):
            lost.update(dict.fromkeys(outputs, op))
    for name in lost.keys() & set(targets):
        raise BackwardError(
            f"{name!r} depends on operator {lost[name].describe()}, which computes a gradient, and there are no second "
            "derivatives: set stop_gradient on that gradient if it is to count as given"
        )
    for name in rewritten(path):
        _check_rewritten(path, name, required)
    return required


def rewritten(path: list[Operator]) -> set[str]:
    """Return the variables that have several values one after the other."""
    writes = Counter(name for op in path for name in op.output_names)
    changed = {name for op in path for name in op.output_names if name in op.input_names}
    return changed | {name for name, count in writes.items() if count > 1}


def _check_rewritten(path: list[Operator], name: str, required: set[str]) -> None:
    writers = [position for position, op in enumerate(path) if name in op.output_names]
    for position, op in enumerate(path):
        if required.isdisjoint(op.input_names) or required.isdisjoint(op.output_names):
            continue
        again = writers[-1] > position or (writers[-1] == position and name in op.input_names)
        if again and _keeps(op, name):
            raise BackwardError(
                f"variable {name!r} is written {len(writers)} times on the way to the loss, and the gradient of "
                f"operator {op.describe()} needs its value from before: name each once"
            )


def _keeps(op: Operator, name: str) -> bool:
    """Return whether the gradient of an operator reads the value that the variable has at the operator."""
    rule = op.definition.gradient
    if not isinstance(rule, str):
        return False
    taken = {slot.name for slot in lookup(rule).inputs}
    slots = {**op.inputs, **op.outputs}
    return any(name in names for slot, names in slots.items() if slot in taken)


def allowed(variable: Variable, excluded: set[str]) -> bool:
    """Return whether a variable may have a gradient and is not excluded."""
    return not (
        variable.stop_gradient or variable.name in excluded or not np.issubdtype(variable.dtype, np.floating)
    )
