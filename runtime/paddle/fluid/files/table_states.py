# SPDX-License-Identifier: Apache-2.0
"""Checks saved row states of a distributed embedding, and finds embeddings whose rows are on servers.

The last line of a file of states names the rule and its hyperparameters.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from paddle.fluid.errors import ModelFileError
from paddle.fluid.program.variable import Variable, VarType
from paddle.fluid.run.scope import global_scope
from paddle.ops.base.selected_rows import SelectedRows
from paddle.optim.spec import OptimizerSpec, rule_of

_log = logging.getLogger(__name__)

CLOCKS = 4
"""Columns after the states: a row's last batch and the server's, each in two halves of 16 bits."""


def rule_line(optimizer: OptimizerSpec) -> str:
    """Format a rule and its hyperparameters as the line of text that files of states contain."""
    return " ".join((optimizer.rule, *sorted(optimizer.hyper)))


def check_rule(path: Path, line: str, rule: str, columns: int, width: int) -> None:
    """Check that a file's states belong to an update rule; without a rule line, only check the number of states.

    Args:
        line: the file's `rule_line`; "" if it has none, as in files of earlier releases.
        rule: the `rule_line` of the program's table.
        columns: number of columns in the file.
        width: number of elements in a row of the table.

    Raises:
        ModelFileError: the file has the states of a different rule.
    """
    wanted = len(rule_of(OptimizerSpec(rule.split()[0])).states(0.0))
    if line == rule:
        return
    if not line and columns == wanted * width + CLOCKS:
        _log.warning(
            "file %s does not name an update rule: its row states are read as those of %s", path, _text(rule)
        )
        return
    found = f"states of {_text(line)}" if line else f"{columns} columns per row and names no update rule"
    raise ModelFileError(
        f"{path} has {found}, but the program updates this table by {_text(rule)}, which has {wanted} states per row. "
        "Use the rule of the job that saved the file, or remove the file to begin without states"
    )


def is_on_servers(variable: Variable) -> bool:
    """Return whether a variable is a distributed embedding whose rows are not in this trainer's scope."""
    scope = global_scope()
    is_table = variable.type == VarType.LOD_TENSOR and scope.has(variable.name)
    return is_table and isinstance(scope.get(variable.name), SelectedRows)


def without_served_rows(variables: Iterable[Variable]) -> list[Variable]:
    """Return the variables without distributed embeddings on servers, about which it logs a warning."""
    chosen = list(variables)
    tables = [each.name for each in chosen if is_on_servers(each)]
    if tables:
        _log.warning(
            "distributed embedding %s: left out, because its rows are on the parameter servers; save_persistables and "
            "load_persistables include them",
            ", ".join(tables),
        )
    return [each for each in chosen if each.name not in tables]


def _text(line: str) -> str:
    name, *hyper = line.split()
    return f"{name}({', '.join(hyper)})"
