# SPDX-License-Identifier: Apache-2.0
"""The distributed embedding: a table whose rows exist only on servers; row i is on server i mod servers.

Ids are unsigned. A trainer fetches the rows of its batch and sends gradients of rows; a server's blocks update the
table, answer fetches and save. A program can have several tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.files.table_states import rule_line
from paddle.fluid.program.block import Block
from paddle.fluid.program.operator import Operator, OpRole
from paddle.fluid.program.program import Program
from paddle.fluid.program.variable import Variable, VarType
from paddle.graph import unique_name
from paddle.optim.rules.table import FLUID, RULES
from paddle.optim.spec import OptimizerSpec
from paddle_node.contract.classes import dataclass, replace

PATH = "kLookupTablePath"

_LOOKUP = "lookup_table"
_ANY_IDS = (-1, 1)
_LAZY = {"adam": "lazy_adam"}  # operator -> the rule that leaves rows without a gradient alone


@dataclass(frozen=True)
class GrowingTable:
    """A distributed embedding of a program.

    Attributes:
        name: the name of the table.
        grad: name of the table's gradient.
        shape: (rows, width); the number of rows is not a limit.
        begins: attributes of lookup_sparse_table that determine the initial values of rows.
        prefix: prefix of the names of fetched variables; with a single table, the names are the original's.
        rule: attributes of update_sparse_table that define the update of rows; None for sgd with summed gradients.
    """

    name: str
    grad: str
    shape: tuple[int, int]
    begins: Mapping[str, Any]
    prefix: str = ""
    rule: Mapping[str, Any] | None = None

    @property
    def rule_line(self) -> str:
        """The table's update rule and its hyperparameters as one line of text."""
        if self.rule is None:
            return rule_line(OptimizerSpec("sgd"))
        hyper = zip(self.rule["hyper_names"], self.rule["hyper_values"], strict=True)
        return rule_line(OptimizerSpec(self.rule["rule"], dict(hyper)))

    def asked(self, server: int) -> str:
        """Return the name of the variable with the ids that a trainer requests from a server."""
        return f"{self.prefix}prefetch_compress_in_tmp_{server}"

    def found(self, server: int) -> str:
        """Return the name of the variable with the rows that a server returns to a trainer."""
        return f"{self.prefix}prefetch_compress_out_tmp_{server}"


def growing_tables(main: Program, startup: Program, pairs: Mapping[str, str]) -> list[GrowingTable]:
    """Return the distributed embeddings of a program, sorted by name.

    Args:
        main: the program after `minimize`.
        startup: program with the operators that initialize the tables.
        pairs: parameter -> gradient.

    Raises:
        FluidError: a table is used in a way that servers do not support.
    """
    lookups = [op for block in main.blocks for op in block.ops if op.type == _LOOKUP]
    names = sorted({op.inputs["W"][0] for op in lookups if op.attrs["is_distributed"]})
    tables = [_growing_table(main, startup, pairs, lookups, name) for name in names]
    return tables if len(tables) < 2 else [replace(each, prefix=f"{each.name}.") for each in tables]


def _growing_table(
    main: Program, startup: Program, pairs: Mapping[str, str], lookups: Sequence[Any], name: str
) -> GrowingTable:
    block = main.global_block()
    for op in lookups:
        if op.inputs["W"][0] != name:
            continue
        if not (op.attrs["is_distributed"] and op.attrs["is_sparse"]):
            raise FluidError(f"embedding {name!r}: all its lookups must be is_distributed and is_sparse")
        if op.attrs["padding_idx"] != -1:
            raise FluidError(
                f"embedding {name!r}: padding_idx is not supported with is_distributed=True; omit it"
            )
        if op not in block.ops:
            raise FluidError(
                f"embedding {name!r} is distributed: it must not be looked up within a loop or condition"
            )
    if name not in pairs:
        raise FluidError(
            f"embedding {name!r} is distributed and has no update: call minimize before transpile"
        )
    table = block.var(name)
    if table.dtype.name != "float32":
        raise FluidError(
            f"embedding {name!r} is distributed and has dtype {table.dtype}, but servers store rows as float32: give "
            "dtype='float32', or omit is_distributed"
        )
    rows, width = table.shape
    return GrowingTable(name, pairs[name], (rows, width), _begins(name, startup))


def own_rule(
    table: GrowingTable, tables: Collection[str], updates: Sequence[Operator], startup: Program
) -> GrowingTable:
    """Return a copy of the table that uses the update rule of the other parameters.

    Args:
        tables: names of all tables.
        updates: updates of the program, including those of the tables.
        startup: program with the initial values of the rule's arrays.

    Raises:
        FluidError: no other parameter is updated, or its rule cannot update single rows.
    """
    others = [op for op in updates if "Param" in op.inputs and op.inputs["Param"][0] not in tables]
    rows = {row.op_type: (cls, row) for cls, row in FLUID}
    if not others or others[0].type not in rows:
        raise FluidError(
            f"embedding {table.name!r}: table_rule='own' needs another parameter whose rule can change single rows, "
            "but there is none; give table_rule='sgd'"
        )
    like = others[0]
    cls, row = rows[like.type]
    if cls.needs_whole:
        raise FluidError(
            f"embedding {table.name!r}: {like.type} needs all rows of the table, so table_rule must be 'sgd'"
        )
    given: dict[str, Any] = {name: like.attrs[name] for name in row.attrs}
    hyper = {name: float(value) for name, value in row.fields(given).items()}
    for kept in row.kept:
        if kept.fill:
            (name,) = like.inputs[kept.slot]
            (fill,) = (op for op in startup.global_block().ops if name in op.writes)
            hyper[kept.fill] = float(fill.attrs["value"])  # type: ignore[arg-type]
    rule = _LAZY.get(like.type) or next(name for name, each in RULES.items() if each is cls)
    return replace(
        table, rule={"rule": rule, "hyper_names": tuple(hyper), "hyper_values": tuple(hyper.values())}
    )


def rewrite_lookups(block: Block, table: GrowingTable, endpoints: Sequence[str], trainer_id: int) -> None:
    """Replace lookups in place, at the position of the first one, with split_ids, prefetch and merge_ids.

    Raises:
        FluidError: the ids of a later lookup are not available yet at that position.
    """
    positions = [
        at for at, op in enumerate(block.ops) if op.type == _LOOKUP and op.inputs["W"] == (table.name,)
    ]
    ops = [block.ops[at] for at in positions]
    ids = list(dict.fromkeys(op.inputs["Ids"][0] for op in ops))
    late = {name for at in range(positions[0], positions[-1]) for name in block.ops[at].writes} & set(ids)
    if late:
        raise FluidError(
            f"embedding {table.name!r} is distributed, but the ids {min(late)!r} are computed after its first lookup. "
            "Compute all ids before that lookup"
        )
    dtype, width = block.var(table.name).dtype, table.shape[1]
    given = [block.create_var(table.asked(at), _ANY_IDS, "int64") for at in range(len(endpoints))]
    fetched = [block.create_var(table.found(at), (-1, width), dtype) for at in range(len(endpoints))]
    for at in reversed(positions):
        block._remove_op(at)
    at, role = positions[0], {"op_role": int(OpRole.RPC)}
    block._insert_op(at, "split_ids", {"Ids": ids}, {"Out": given}, {"op_role": int(OpRole.DIST)})
    attrs = {"epmap": tuple(endpoints), "trainer_id": trainer_id, **role}
    block._insert_op(at + 1, "prefetch", {"X": given}, {"Out": fetched}, attrs)
    block._insert_op(
        at + 2,
        "merge_ids",
        {"Ids": [op.inputs["Ids"][0] for op in ops], "Rows": given, "X": fetched},
        {"Out": [op.outputs["Out"][0] for op in ops]},
        {"op_role": int(OpRole.DIST)},
    )


def table_fetched(names: Sequence[str], prefetch: Any) -> str:
    """Return the table from which a prefetch operator of `rewrite_lookups` fetches rows."""
    (asked, *_) = prefetch.inputs["X"]
    return next((name for name in names if asked.startswith(f"{name}.prefetch_")), names[0])


def send_gradient(
    block: Block, table: GrowingTable, endpoints: Sequence[str], trainer_id: int, sync: bool
) -> Variable:
    """Insert split_ids and send after the operator that writes the table's gradient; return send's dummy output."""
    at = 1 + max(
        index
        for index, op in enumerate(block.ops)
        if table.grad in op.writes and isinstance(op, Operator) and op.role != OpRole.OPTIMIZE
    )
    parts = [
        block.create_var(name, table.shape, block.var(table.grad).dtype, type=VarType.SELECTED_ROWS)
        for name in (_sent(table, trainer_id if sync else None, server) for server in range(len(endpoints)))
    ]
    dummy = block.create_var(unique_name.generate("__control_var@"), type=VarType.RAW)
    block._insert_op(at, "split_ids", {"Ids": table.grad}, {"Out": parts}, {"op_role": int(OpRole.DIST)})
    attrs = {
        "epmap": tuple(endpoints),
        "trainer_id": trainer_id,
        "op_role": int(OpRole.RPC),
        "op_role_var": (table.name, table.grad),
    }
    block._insert_op(at + 1, "send", {"X": parts}, {"Out": dummy}, attrs)
    return dummy


def rewrite_startup(startup: Program, table: GrowingTable) -> None:
    """Remove the table's rows from a trainer's startup program, in place."""
    block = startup.global_block()
    block.ops = [op for op in block.ops if table.name not in op.writes]
    startup.touch()
    block.append_op("fake_init", {}, {"Out": table.name}, {"shape": table.shape})


def serve_table(
    program: Program,
    origin: Block,
    table: GrowingTable,
    update: Operator,
    server: int,
    servers: int,
    trainers: int | None,
    parent: int,
) -> TableBlocks:
    """Add a server's blocks for one table, and its variables.

    Args:
        program: the server's program, with all other blocks.
        origin: block 0 of the program for one machine.
        trainers: number of trainers whose gradients are summed; None means each gradient is applied on arrival.
        parent: number of the blocks' parent.
    """
    outer = program.global_block()
    assert isinstance(outer, Block)
    dtype = origin.var(table.name).dtype
    shape = (-(-table.shape[0] // servers), table.shape[1])
    rows = VarType.SELECTED_ROWS
    outer.create_var(table.name, shape, dtype, persistable=True, type=rows)
    names = [_sent(table, at, server) for at in range(trainers)] if trainers else [_sent(table, None, server)]
    for name in names:
        outer.create_var(name, shape, dtype, type=rows)
    (rate,) = update.inputs["LearningRate"]
    if not outer.has_var(rate):
        outer.create_var(rate, origin.var(rate).shape, origin.var(rate).dtype, persistable=True)
    role = {"op_role": int(OpRole.OPTIMIZE)}
    updating = program._create_block(parent)
    merged = names[0]
    if trainers:
        merged = outer.create_var(table.grad, shape, dtype, type=rows).name
        updating.append_op("sum", {"X": names}, {"Out": merged}, role)
    slots = {"Param": table.name, "Grad": merged, "LearningRate": rate}
    if table.rule is None:
        updating.append_op(update.type, slots, {"ParamOut": table.name}, dict(update.attrs))
    else:
        attrs = {**table.rule, "scale": 1.0 / (trainers or 1), **role}
        updating.append_op("update_sparse_table", slots, {"ParamOut": table.name}, attrs)
    looking = program._create_block(parent)
    ids = outer.create_var(table.asked(server), _ANY_IDS, "int64")
    found = outer.create_var(table.found(server), (-1, table.shape[1]), dtype)
    looking.append_op(
        "lookup_sparse_table", {"W": table.name, "Ids": ids}, {"Out": found}, dict(table.begins)
    )
    return TableBlocks(tuple(names), updating, f"{ids.name}:{looking.idx}")


def save_tables(program: Program, tables: Sequence[GrowingTable], parent: int) -> int:
    """Add a server's block that saves the tables, and return its number."""
    program.global_block().create_var(PATH, persistable=True, type=VarType.RAW)
    saving = program._create_block(parent)
    for table in tables:
        saving.append_op("save", {"X": table.name}, {}, {"file_path": "none"})
    return saving.idx


@dataclass(frozen=True)
class TableBlocks:
    """The attributes of listen_and_serv for one table.

    Attributes:
        gradients: names of the gradients, in the order of trainers.
        update: the block that updates.
        lookup: "<name>:<block>": the name in a lookup request, and the block that answers it.
    """

    gradients: tuple[str, ...]
    update: Block
    lookup: str


def _sent(table: GrowingTable, trainer: int | None, server: int) -> str:
    return f"{table.grad}{'' if trainer is None else f'.trainer_{trainer}'}.pserver_{server}"


def _begins(name: str, startup: Program) -> Mapping[str, Any]:
    """Return the table's initializer in the startup program, as attributes of lookup_sparse_table.

    Raises:
        FluidError: there is not exactly one initializer, or it cannot draw single rows.
    """
    ops = [op for op in startup.global_block().ops if name in op.writes]
    if len(ops) != 1:
        raise FluidError(f"embedding {name!r} is distributed: expected 1 initializer, got {len(ops)}")
    (op,) = ops
    attrs: Mapping[str, Any] = op.attrs
    if op.type == "fill_constant":
        kind, mean, spread = "constant", float(attrs["value"]), 0.0
    elif op.type == "uniform_random":
        kind, mean = "uniform", (attrs["min"] + attrs["max"]) / 2
        spread = (attrs["max"] - attrs["min"]) / 2
    elif op.type == "gaussian_random":
        kind, mean, spread = "normal", attrs["mean"], attrs["std"]
    else:
        raise FluidError(
            f"embedding {name!r} is distributed: its rows cannot be initialized by {op.type}; "
            "expected fill_constant, uniform_random or gaussian_random"
        )
    # All servers draw the same values for one table, and different ones for other tables.
    seed = int(attrs.get("seed", 0)) or startup.random_seed or zlib.crc32(name.encode())
    return {"initial_kind": kind, "initial_mean": mean, "initial_spread": spread, "initial_seed": seed}
