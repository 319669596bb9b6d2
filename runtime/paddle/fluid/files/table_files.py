# SPDX-License-Identifier: Apache-2.0
"""Files of the distributed embedding: `<dirname>/__lookup_table__/<table>_<i>`, the rows of server i as selected rows.

Every server writes its own, on its own machine; any number of servers can begin with them, each with the files of all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paddle.fluid.errors import ModelFileError
from paddle.fluid.files.variable_files import read_value
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Variable
from paddle.fluid.remote.connection import Connection
from paddle.fluid.run.scope import global_scope
from paddle.ops.base.selected_rows import SelectedRows

_FOLDER = "__lookup_table__"


def save_table(program: Program, folder: Path) -> None:
    """Let servers save the table of a trainer's program, if it has one.

    Raises:
        PserverError: a server cannot write.
    """
    name, connection = program._distributed_lookup_table, program._connection
    if name is not None and isinstance(connection, Connection):
        paths = {each: f"{folder}/{_FOLDER}/{name}_{at}" for at, each in enumerate(program._endpoints)}
        connection.save(name, paths)


def load_table(program: Program, folder: Path) -> None:
    """Give a server's program its rows of all files there are; nothing happens if it has no table.

    Raises:
        ModelFileError: there are none, or one is damaged.
    """
    name = program._distributed_lookup_table
    if name is None:
        return
    variable = program.global_block().var(name)
    assert isinstance(variable, Variable)
    paths = [each for each in sorted((folder / _FOLDER).glob(f"{name}_*")) if _number(each, name).isdigit()]
    if not paths:
        raise ModelFileError(
            f"{folder / _FOLDER}: no file {name}_0, {name}_1, ... of the distributed embedding"
        )
    servers = len(program._endpoints)
    server = program._endpoints.index(program._ps_endpoint or "")
    rows, values = [], []
    for path in paths:
        held = read_value(path, variable)
        mine = held.rows.view(np.uint64) % np.uint64(servers) == server
        rows.append(held.rows[mine])
        values.append(held.values[mine])
    whole = SelectedRows(np.concatenate(rows), np.concatenate(values), variable.shape[0])
    global_scope().set(name, whole)


def _number(path: Path, name: str) -> str:
    return path.name[len(name) + 1 :]
