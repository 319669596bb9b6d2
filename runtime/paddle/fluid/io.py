# SPDX-License-Identifier: Apache-2.0
"""Saving and loading of models in the original's file formats; the module also has readers under their old names.

An inference model is a folder that contains a pruned program, `__model__`, and the variables that this program needs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paddle import later
from paddle.backend import to_host
from paddle.fluid.errors import FluidError, FluidTypeError, ModelFileError, answering
from paddle.fluid.executor import Executor
from paddle.fluid.files import variable_files
from paddle.fluid.files.table_states import is_on_servers
from paddle.fluid.files.variable_files import (
    is_parameter,
    is_persistable,
    load_params,
    load_vars,
    save_params,
    save_vars,
)
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program, default_main_program
from paddle.fluid.program.variable import Parameter, Variable, VarType
from paddle.fluid.reader import DataLoader, PyReader
from paddle.fluid.run.scope import global_scope
from paddle.graph.errors import UnknownVariableError
from paddle.reader import (
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    shuffle,
    xmap_readers,
)
from paddle.signatures import advice, explained

if TYPE_CHECKING:
    from paddle.fluid.transpiler.distributed_files import load_persistables, save_persistables
    from paddle.reader.processes import multiprocess_reader

__all__ = [
    "DataLoader", "PyReader", "batch", "buffered", "cache", "chain", "compose", "firstn",
    "get_inference_program", "get_parameter_value", "get_parameter_value_by_name", "is_parameter",
    "is_persistable", "load_inference_model", "load_params", "load_persistables", "load_vars",
    "map_readers", "multiprocess_reader", "save_inference_model", "save_params", "save_persistables",
    "save_vars", "shuffle", "xmap_readers",
]  # fmt: skip

_HARMLESS = ("feed", "fetch", "print")


def get_parameter_value(para: Parameter, executor: Executor) -> npt.NDArray[Any]:
    """Return a parameter's value in the global scope, as an array.

    Raises:
        FluidTypeError: para is not a parameter.
    """
    if not isinstance(para, Parameter):
        raise FluidTypeError(f"get_parameter_value: expected a Parameter, got {para!r}")
    return np.array(to_host(global_scope().get(para.name)))


def get_parameter_value_by_name(
    name: str, executor: Executor, program: Program | None = None
) -> npt.NDArray[Any]:
    """Return the value of the named parameter in the global scope, as an array; see `get_parameter_value`."""
    variable = (program or default_main_program()).global_block().var(name)
    return get_parameter_value(variable, executor)  # type: ignore[arg-type]


def get_inference_program(
    target_vars: Sequence[Variable] | Variable, main_program: Program | None = None
) -> Program:
    """Return a program in test mode that computes the given variables.

    Fluid 1.2 replaced this with `clone(for_test=True)`.
    """
    return (main_program or default_main_program())._inference_optimize()._prune(target_vars)


@explained
def save_inference_model(
    dirname: str | os.PathLike[str],
    feeded_var_names: Sequence[str] | str,
    target_vars: Sequence[Variable | str] | Variable | str,
    executor: Executor,
    main_program: Program | None = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the part of a program that computes targets from feeds, and its parameters, for inference.

    Args:
        dirname: the folder, which is created.
        feeded_var_names: names of the fed variables, in order.
        target_vars: variables or names to be fetched, in order.
        executor: ignored.
        main_program: the program, which stays unchanged; None means the default main program.
        model_filename: file name of the program; None means `__model__`.
        params_filename: one file for all variables; None means one file per variable.
        export_for_deployment: ignored.
        program_only: do not save the variables.

    Returns:
        The names of the targets in the saved program.

    Raises:
        FluidError: a target depends on a variable that is not fed, or on a distributed embedding.
    """
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    if wrong := [each for each in feeds if not isinstance(each, str)]:
        raise FluidTypeError(
            f"feeded_var_names: expected names, such as [x.name], got {type(wrong[0]).__name__} "
            f"{getattr(wrong[0], 'name', wrong[0])!r}"
        )
    targets = [target_vars] if isinstance(target_vars, (Variable, str)) else list(target_vars)
    program = (main_program or default_main_program())._inference_optimize()
    block = program.global_block()
    # Targets computed after an update must not depend on the gradients of that update.
    block.ops = [op for op in block.ops if not (isinstance(op, Operator) and op.role & OpRole.OPTIMIZE)]
    _check_names(block, feeds, [each if isinstance(each, str) else each.name for each in targets])
    names = []
    for number, target in enumerate(targets):
        name = f"save_infer_model/scale_{number}"
        source = block.var(target if isinstance(target, str) else target.name).name
        block.append_op("scale", {"X": source}, {"Out": name}, {"scale": 1.0})
        names.append(name)
    from paddle.fluid.transpiler.trainer_side import use_own_tables

    use_own_tables(program)
    pruned = program.prune([*names, *feeds])
    _check_feeds(pruned, feeds)
    _check_tables(pruned)
    _mark_feeds(pruned, feeds, names)
    folder = Path(dirname)
    variable_files.make_folder(folder)
    path = folder / (model_filename or "__model__")
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial.write_bytes(pruned.serialize_to_string())
    partial.replace(path)
    if not program_only:
        from paddle.fluid.transpiler.distributed_files import save_all

        save_all(executor, dirname, pruned, params_filename, fetch=True)
    return names


@explained
def load_inference_model(
    dirname: str | os.PathLike[str],
    executor: Executor,
    model_filename: str | None = None,
    params_filename: str | None = None,
    pserver_endpoints: Sequence[str] | None = None,
) -> tuple[Program, list[str], list[Variable]]:
    """Load a model and set its variables in the global scope; return (program, feed names, fetch variables).

    Raises:
        ModelFileError: a file is missing or damaged.
        FluidError: pserver_endpoints are given for a distributed embedding, which inference reads from its file.
    """
    path = Path(dirname) / (model_filename or "__model__")
    with variable_files.opened(path) as stream:
        program = Program.parse_from_string(stream.read())
    for op in (op for each in program.blocks for op in each.ops):
        if op.definition.has_effect and op.type not in _HARMLESS:
            raise ModelFileError(
                f"{path} is not an inference model: its operator {op.type!r} has side effects"
            )
        if pserver_endpoints and op.attrs.get("is_distributed"):
            raise FluidError(
                f"load_inference_model: {op.inputs['W'][0]!r} is a distributed embedding, but inference does not read "
                "tables from servers; omit pserver_endpoints to use the rows that were saved with the model"
            )
    block = program.global_block()
    feeds = sorted((op for op in block.ops if op.type == "feed"), key=_column)
    fetches = sorted((op for op in block.ops if op.type == "fetch"), key=_column)
    block.ops = [op for op in block.ops if op.type not in ("feed", "fetch")]
    for name in ("feed", "fetch"):
        block.vars.pop(name, None)
    fed = [op.outputs["Out"][0] for op in feeds]
    wanted = [op.inputs["X"][0] for op in fetches]
    for name in (*fed, *wanted):
        if name not in block.vars:
            raise ModelFileError(f"{path} feeds or fetches {name!r}, but does not describe this variable")
    for name in fed:
        block.var(name).is_data = True
    program.touch()
    variable_files.load_persistables(executor, dirname, program, params_filename)
    return program, fed, [block.var(name) for name in wanted]


def _column(op: object) -> int:
    return int(op.attrs["col"])  # type: ignore[attr-defined]


def _check_names(block: Block, feeds: Sequence[str], targets: Sequence[str]) -> None:
    for argument, names in (("feeded_var_names", feeds), ("target_vars", targets)):
        for name in names:
            if name not in block.vars:
                known = [each for each in block.vars if names is targets or block.var(each).is_data]
                raise UnknownVariableError(
                    f"{argument}: no variable of the program is named {name!r}; a variable of Python has another name: "
                    f"use x.name; {advice(name, known, 'the names')}"
                )
    if targets and all(block.var(name).is_data for name in targets):
        computed = [name for name in feeds if not block.var(name).is_data]
        step = (
            f"{computed} are computed: exchange feeded_var_names and target_vars"
            if computed
            else "give predictions"
        )
        raise FluidError(f"target_vars: {list(targets)} are data layers; {step}")


def _check_feeds(program: Program, feeds: Sequence[str]) -> None:
    block = program.global_block()
    known = set(feeds) | {name for name, variable in block.vars.items() if variable.persistable}
    for op in block.ops:
        for name in op.reads:
            if name not in known:
                raise FluidError(
                    f"the targets depend on {name!r}, which is not one of the fed variables: {list(feeds)}. Add it "
                    "to feeded_var_names or, if it is a label, give the prediction as target instead of the cost"
                )
        known.update(op.writes)


def _check_tables(program: Program) -> None:
    """Refuse a model whose embedding has its rows on parameter servers, because it could not be loaded."""
    block = program.global_block()
    tables = [name for op in block.ops for name in op.inputs.get("W", ()) if is_on_servers(block.var(name))]
    if any(op.type == "prefetch" for op in block.ops):
        tables = [*program._distributed_lookup_tables]
    if tables:
        raise FluidError(
            f"the rows of the distributed embedding {tables[0]!r} are on the parameter servers, and the model would "
            "lack them: call save_persistables, and see contrib.utils.lookup_table_utils for a process that infers"
        )


def _mark_feeds(program: Program, feeds: Sequence[str], fetches: Sequence[str]) -> None:
    block = program.global_block()
    block.create_var("feed", persistable=True, type=VarType.FEED_MINIBATCH)
    block.create_var("fetch", persistable=True, type=VarType.FETCH_LIST)
    for column, name in enumerate(feeds):
        block._prepend_op("feed", {"X": "feed"}, {"Out": name}, {"col": column})
    for column, name in enumerate(fetches):
        block.append_op("fetch", {"X": name}, {"Out": "fetch"}, {"col": column})


__getattr__, __dir__ = later.attributes(
    __name__,
    {
        "paddle.fluid.transpiler.distributed_files": "load_persistables save_persistables",  # they ask servers
        "paddle.reader.processes": "multiprocess_reader",
    },
    answering(__name__, depth=2),
)
