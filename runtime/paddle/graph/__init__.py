# SPDX-License-Identifier: Apache-2.0
"""The training core: programs of operators, their gradients, and the executor that runs them."""

from paddle.graph import unique_name
from paddle.graph.backward import append_backward
from paddle.graph.block import Block
from paddle.graph.executor import Executor
from paddle.graph.operator import Operator
from paddle.graph.program import Program
from paddle.graph.scope import Scope
from paddle.graph.variable import Parameter, Variable
from paddle.ops.base.selected_rows import SelectedRows

__all__ = [
    "Block", "Executor", "Operator", "Parameter", "Program", "Scope", "SelectedRows", "Variable", "append_backward",
    "unique_name",
]  # fmt: skip
