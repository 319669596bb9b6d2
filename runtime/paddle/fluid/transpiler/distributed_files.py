# SPDX-License-Identifier: Apache-2.0
"""Saves and loads variables of distributed programs under the names of the program for one machine.

Trainer 0 saves the state; any number of servers, or a program on one machine, can load it. The rows of a distributed
embedding on server i are in `<dirname>/__lookup_table__/<table>_<i>`, as selected rows; their update rule's states are
in `<table>_<i>.states`, which names the rule. Every server writes its own files, on its own machine. Any number of
servers can load them, if each server has all the files.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from paddle.backend import to_host
from paddle.fluid.errors import FluidError, ModelFileError
from paddle.fluid.files import variable_files
from paddle.fluid.files.table_states import check_rule
from paddle.fluid.files.variable_files import (
    TABLE_STATES,
    is_persistable,
    load_vars,
    place_of,
    read_table,
    read_table_states,
    save_vars,
    write_value,
)
from paddle.fluid.program.program import Program, default_main_program
from paddle.fluid.program.variable import Variable
from paddle.fluid.remote.connection import Connection
from paddle.fluid.remote.distribution import serving_operator
from paddle.fluid.run.scope import global_scope, scope_guard
from paddle.fluid.transpiler.whereabouts import VarDistributed, VarsDistributed
from paddle.ops.base.selected_rows import SelectedRows
from paddle.signatures import explained

_REMOTE = ("Optimizer", "RemotePrefetch")
_FOLDER = "__lookup_table__"


@explained
def save_persistables(
    executor: object,
    dirname: str | os.PathLike[str],
    main_program: Program | None = None,
    filename: str | None = None,
) -> None:
    """Save all persistable variables: parameters, optimizer state, learning rates; see `save_vars`.

    With a transpiled program, every trainer saves its own variables, and trainer 0 also saves the servers'.

    Raises:
        NotInitializedError: a variable has no value.
        PserverError: a server does not send its variables.
    """
    program = main_program or default_main_program()
    save_all(executor, dirname, program, filename, fetch=program._is_chief)


def save_all(
    executor: object, dirname: str | os.PathLike[str], program: Program, filename: str | None, *, fetch: bool
) -> None:
    """Save all persistable variables, like `save_persistables`; `fetch`: whether to include the servers' variables."""
    remote = _remote(program)
    if not program._distributed_lookup_tables and not remote:
        variable_files.save_persistables(executor, dirname, program, filename)
        return
    if fetch:
        _save_tables(program, Path(dirname))
    own = _own(program, remote)
    if not fetch:
        save_vars(executor, dirname, program, own, filename=filename)
    elif filename is None:
        save_vars(executor, dirname, program, own)
        for name, parts in remote.items():
            write_value(place_of(dirname, name), _fetched(program, parts))
    else:
        scope = global_scope().new_scope()
        for name, parts in remote.items():
            scope.set(name, _fetched(program, parts))
        with scope_guard(scope):
            save_vars(executor, dirname, program, _own(program, ()), filename=filename)


@explained
def load_persistables(
    executor: object,
    dirname: str | os.PathLike[str],
    main_program: Program | None = None,
    filename: str | None = None,
) -> None:
    """Load the files of `save_persistables`; see `load_vars`.

    A server's program loads its slices of the files. A trainer's program loads its own variables. On trainer 0, it also
    loads the servers' variables; if this happens before the first step, the servers start with these values.

    Raises:
        ModelFileError: a file is missing or damaged, or contains a value of a different shape or dtype.
        FluidError: a server's variables would have to come from one file for all variables.
    """
    program = main_program or default_main_program()
    overview, block = program._parameters_on_pservers, program.global_block()
    if serving_operator(program) is not None and isinstance(overview, VarsDistributed):
        if filename is not None:
            raise FluidError(
                "a server loads each variable from its own file: call the save function without filename"
            )
        tables = {
            name: rows_of_server(program, read_table_files(Path(dirname), block.var(name), rule=rule))
            for name, rule in program._distributed_lookup_tables.items()
        }
        load_slices(Path(dirname), overview.get_distributed_vars_by_ep(program._ps_endpoint or ""))
        for name, rows in tables.items():
            global_scope().set(name, rows)
        return
    remote = () if program._is_chief else _remote(program)
    tables = {
        name: read_table_files(Path(dirname), block.var(name), rule=rule)
        for name, rule in program._distributed_lookup_tables.items()
        if program._is_chief and _table_files(Path(dirname), name)
    }
    load_vars(executor, dirname, program, _own(program, remote), filename=filename)
    for name, whole in tables.items():
        height, width = block.var(name).shape
        held, states = np.split(whole.values, [width], axis=1)
        global_scope().set(name, SelectedRows(whole.rows, held.copy(), height))
        if states.shape[1]:
            global_scope().set(f"{name}{TABLE_STATES}", SelectedRows(whole.rows, states, whole.height))


def load_slices(folder: Path, parts: list[VarDistributed]) -> None:
    """Load a server's slices of variables from the files of a folder into the global scope.

    Raises:
        ModelFileError: a file is missing, damaged or too short.
    """
    values = {}
    wholes: dict[str, Any] = {}
    for part in sorted(parts, key=lambda each: each.origin.name):
        assert isinstance(part.origin, Variable)
        if part.origin.name not in wholes:  # slices of one variable are adjacent and need one read
            read = to_host(variable_files.read_value(place_of(folder, part.origin.name), part.origin))
            wholes = {part.origin.name: read}
        whole = wholes[part.origin.name]
        size = int(np.prod(part.slice.shape))
        flat = whole.reshape(-1)[part.offset : part.offset + size]
        if len(flat) != size:
            raise ModelFileError(
                f"{folder / part.origin.name}: {part.slice.name!r} needs {size} elements starting at {part.offset}, "
                f"but the file has {whole.size}"
            )
        values[part.slice.name] = flat.reshape(part.slice.shape).copy()
    scope = global_scope()
    for name, value in values.items():
        scope.set(name, value)


def read_table_files(folder: Path, variable: Variable, *, rule: str | None = None) -> SelectedRows:
    """Read the rows of a table from all of its files; see `read_table_file`.

    Raises:
        ModelFileError: a file is missing or damaged, or some files have no states or those of a different rule.
    """
    paths = _table_files(folder, variable.name)
    if not paths:
        raise ModelFileError(
            f"{folder / _FOLDER}: found no files {variable.name}_<number> of the distributed embedding"
        )
    held = [read_table_file(path, variable.name, rule=rule) for path in paths]
    if len({each.values.shape[1:] for each in held}) > 1:
        raise ModelFileError(
            f"{folder / _FOLDER}: the files of {variable.name!r} have rows of different widths, "
            f"because some files {variable.name}_<i>{TABLE_STATES} are missing or belong to "
            "a different job. Copy the files of all servers, or remove these files to start without "
            "the states of the update rule"
        )
    rows, values = (
        np.concatenate([each.rows for each in held]),
        np.concatenate([each.values for each in held]),
    )
    has_states = values.shape[1:] != variable.shape[1:]
    return SelectedRows(rows, values, max(each.height for each in held) if has_states else variable.shape[0])


def read_table_file(path: Path, name: str, *, rule: str | None) -> SelectedRows:
    """Read the rows in a table's file, and the state of their update rule if it was saved.

    Args:
        rule: `rule_line` of the program's table; None means the states are not read.

    Raises:
        ModelFileError: a file is missing or damaged, or the states belong to other rows or to a different rule.
    """
    rows, beside = read_table(path, name), path.with_name(f"{path.name}{TABLE_STATES}")
    if rule is None or not beside.exists():
        return rows
    states, line = read_table_states(beside, name)
    check_rule(beside, line, rule, states.values.shape[1], rows.values.shape[1])
    if not np.array_equal(states.rows, rows.rows):
        raise ModelFileError(
            f"{beside} and {path.name} have different rows: remove {beside.name} to start without the "
            "states of the update rule"
        )
    return SelectedRows(rows.rows, np.concatenate([rows.values, states.values], axis=1), states.height)


def rows_of_server(program: Program, whole: SelectedRows) -> SelectedRows:
    """Return the rows of a whole table that belong to a program's server."""
    server = program._endpoints.index(program._ps_endpoint or "")
    mine = whole.rows.view(np.uint64) % np.uint64(len(program._endpoints)) == server
    return SelectedRows(whole.rows[mine], whole.values[mine], whole.height)


def _own(program: Program, remote: Container[str]) -> list[Variable]:
    """Return the persistable variables that a program stores in its own process."""
    found: Iterable[Any] = program.list_vars()
    others = {*program._distributed_lookup_tables}
    return [
        each for each in found if is_persistable(each) and each.name not in remote and each.name not in others
    ]


def _remote(program: Program) -> dict[str, list[VarDistributed]]:
    """Return the variables of a trainer's program that only servers store, as name -> parts in order."""
    overview = program._parameters_on_pservers
    found: dict[str, dict[int, VarDistributed]] = {}
    if isinstance(overview, VarsDistributed) and _connection(program) is not None:
        for each in overview.get_distributed_vars_by_vtypes(_REMOTE):
            if program.global_block().find(each.origin.name) is not None:
                found.setdefault(each.origin.name, {})[each.block_id] = each
    return {name: [parts[at] for at in sorted(parts)] for name, parts in found.items()}


def _connection(program: Program) -> Connection | None:
    """Return the connection from a trainer's program to the servers."""
    return next((each for each in program._connections if isinstance(each, Connection)), None)


def _fetched(program: Program, parts: list[VarDistributed]) -> Any:
    connection = _connection(program)
    assert connection is not None
    wanted: dict[str, list[str]] = {}
    for part in parts:
        wanted.setdefault(part.endpoint, []).append(part.slice.name)
    found = connection.fetch(wanted)
    values = [found[part.endpoint][part.slice.name] for part in parts]
    return values[0] if len(values) == 1 else np.concatenate(values)


def _save_tables(program: Program, folder: Path) -> None:
    """Make the servers save the tables of a trainer's program.

    Raises:
        PserverError: a server cannot write.
    """
    connection = _connection(program)
    if connection is None:
        return
    for name in program._distributed_lookup_tables:
        paths = {each: f"{folder}/{_FOLDER}/{name}_{at}" for at, each in enumerate(program._endpoints)}
        connection.save(name, paths)


def _table_files(folder: Path, name: str) -> list[Path]:
    return [each for each in sorted((folder / _FOLDER).glob(f"{name}_*")) if _number(each, name).isdigit()]


def _number(path: Path, name: str) -> str:
    return path.name[len(name) + 1 :]
