# SPDX-License-Identifier: Apache-2.0
"""Runs programs with distributed embeddings without servers, from the files that the servers saved."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from paddle.fluid.errors import FluidError, FluidTypeError, ModelFileError
from paddle.fluid.files.variable_files import is_persistable, load_vars
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Variable, VarType
from paddle.fluid.run.scope import global_scope
from paddle.fluid.transpiler.distributed_files import (
    load_slices,
    read_table_file,
    read_table_files,
    rows_of_server,
)
from paddle.fluid.transpiler.growing import table_fetched
from paddle.fluid.transpiler.whereabouts import VarsDistributed

__all__ = [
    "convert_dist_to_sparse_program", "load_persistables_for_increment", "load_persistables_for_inference",
]  # fmt: skip

_log = logging.getLogger(__name__)
_FETCHING = ("split_ids", "prefetch", "merge_ids")


def convert_dist_to_sparse_program(program: Program) -> Program | None:
    """Change a program in place to read its distributed embeddings from the current scope; return it.

    A table becomes selected rows, which `load_persistables_for_inference` fills; ids without a row give zeros.
    A trainer's program still sends gradients: prune it or clone it for inference. A program that was not transpiled
    must not train. A program without a distributed embedding is left unchanged: a warning is logged, and the result
    is None.

    Raises:
        FluidError: the program fetches no rows from servers.
    """
    names = tuple(program._distributed_lookup_tables)
    if not names and _convert_lookups(program):
        return program
    if not names:
        _log.warning("convert_dist_to_sparse_program: the program has no distributed embedding")
        return None
    block = program.global_block()
    types = [op.type for op in block.ops]
    found = [at for at in range(len(types)) if tuple(types[at : at + 3]) == _FETCHING]
    if not found:
        raise FluidError(
            f"convert_dist_to_sparse_program: the program fetches no rows of {names[0]!r} from servers. "
            "Pass the result of DistributeTranspiler.get_trainer_program()"
        )
    for at in reversed(found):
        name, merge = table_fetched(names, block.ops[at + 1]), block.ops[at + 2]
        block.var(name).type = VarType.SELECTED_ROWS
        looked_up = list(zip(merge.inputs["Ids"], merge.outputs["Out"], strict=True))
        for _ in _FETCHING:
            block._remove_op(at)
        for ids, out in reversed(looked_up):
            block._insert_op(
                at, "lookup_sparse_table", {"W": name, "Ids": ids}, {"Out": out}, {"is_test": True}
            )
    return program


def _convert_lookups(program: Program) -> bool:
    """Convert the lookups of a program that was not transpiled; return whether there are any."""
    block = program.global_block()
    found = [at for at, op in enumerate(block.ops) if op.attrs.get("is_distributed")]
    for at in found:
        op = block.ops[at]
        block.var(op.inputs["W"][0]).type = VarType.SELECTED_ROWS
        block._remove_op(at)
        slots = {slot: list(members) for slot, members in op.inputs.items()}
        outputs = {slot: list(members) for slot, members in op.outputs.items()}
        block._insert_op(at, "lookup_sparse_table", slots, outputs, {"is_test": True})
    return bool(found)


def load_persistables_for_inference(
    dirname: str, executor: object, program: Program | None, lookup_table_var_name: str
) -> Program:
    """Load trainer 0's saved variables and all servers' saved rows into the current scope.

    Return the program.

    Args:
        dirname: the folder passed to `save_persistables`, with the files of all servers in `__lookup_table__`.
        executor: ignored.
        program: the result of `convert_dist_to_sparse_program`; None means the program in `<dirname>/__model__`.
        lookup_table_var_name: name of the table; other tables of the program are loaded as well.

    Raises:
        ModelFileError: the folder or a file is missing or damaged.
    """
    folder = _folder(dirname)
    if program is None:
        program = Program.parse_from_string(_existing(folder / "__model__").read_bytes())
    names = {lookup_table_var_name, *program._distributed_lookup_tables}
    tables = [program.global_block().var(name) for name in sorted(names)]
    load_vars(executor, dirname, program, predicate=_saved_by_trainers(names))
    for table in tables:
        global_scope().set(table.name, read_table_files(folder, table))
    return program


def load_persistables_for_increment(
    dirname: str,
    executor: object,
    program: Program,
    lookup_table_var: Variable | str,
    lookup_table_var_path: str,
) -> None:
    """Load a server's slices, and its rows of one distributed embedding, to continue training; call once per table.

    Args:
        dirname: the folder passed to `save_persistables`.
        executor: ignored.
        program: the server's program, from `get_pserver_program()`.
        lookup_table_var: the table or its name.
        lookup_table_var_path: the file with the rows; rows that belong to other servers are skipped.

    Raises:
        FluidTypeError: the program is not a server's.
        ModelFileError: the folder or a file is missing or damaged.
    """
    folder = _folder(dirname)
    overview = getattr(program, "_parameters_on_pservers", None)
    if not isinstance(program, Program) or not isinstance(overview, VarsDistributed):
        raise FluidTypeError(
            f"load_persistables_for_increment: expected a program from get_pserver_program(), got {program!r}"
        )
    path = _existing(Path(lookup_table_var_path))
    name = lookup_table_var if isinstance(lookup_table_var, str) else lookup_table_var.name
    load_slices(folder, overview.get_distributed_vars_by_ep(program._ps_endpoint or ""))
    rule = program._distributed_lookup_tables.get(name)
    global_scope().set(name, rows_of_server(program, read_table_file(path, name, rule=rule)))


def _saved_by_trainers(tables: Collection[str]) -> Callable[[Variable], bool]:
    """Return whether a trainer saves a variable: it is not a table, a gradient, a slice or a temporary."""
    others = ("@GRAD", ".trainer_", ".block", "tmp_")
    return lambda each: (
        is_persistable(each) and each.name not in tables and not any(other in each.name for other in others)
    )


def _folder(dirname: str) -> Path:
    if not Path(dirname).is_dir():
        raise ModelFileError(
            f"folder {dirname!r} does not exist: trainer 0 creates it when it calls save_persistables"
        )
    return Path(dirname)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise ModelFileError(
            f"file {str(path)!r} does not exist: check the path and copy the servers' files to this machine"
        )
    return path
