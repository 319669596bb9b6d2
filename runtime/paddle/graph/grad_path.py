# SPDX-License-Identifier: Apache-2.0
"""Which operators and variables lie on the way of a gradient."""

from __future__ import annotations

from collections import Counter

import numpy as np

from paddle.graph.block import Block
from paddle.graph.errors import BackwardError
from paddle.graph.operator import Operator
from paddle.graph.variable import Variable


def path_to(block: Block, targets: set[str]) -> list[Operator]:
    """Return the operators of a block that the targets depend on, in order."""
    needed = set(targets)
    path = []
    for op in reversed(block.ops):
        if needed.intersection(op.output_names):
            path.append(op)
            needed.update(op.input_names)
    return path[::-1]


def reaching(block: Block, path: list[Operator], sources: set[str], excluded: set[str]) -> set[str]:
    """Return the sources and the variables on the path that depend on them and may have gradients.

    Raises:
        BackwardError: one of them is written twice.
    """
    writes = Counter(name for op in path for name in op.output_names)
    required = set(sources)
    for op in path:
        if required.intersection(op.input_names):
            required.update(name for name in op.output_names if allowed(block.reach(name), excluded))
    for name in required:
        if writes[name] > 1:
            raise BackwardError(
                f"variable {name!r} is written {writes[name]} times on the way to the loss: name each once"
            )
    return required


def allowed(variable: Variable, excluded: set[str]) -> bool:
    """Return whether a variable may have a gradient and is not excluded."""
    return not (
        variable.stop_gradient or variable.name in excluded or not np.issubdtype(variable.dtype, np.floating)
    )
