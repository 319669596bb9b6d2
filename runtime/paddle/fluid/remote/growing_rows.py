# SPDX-License-Identifier: Apache-2.0
"""GrowingRows: a server's rows of a distributed embedding, and the operations of the program's blocks on them.

The blocks define the operations, and the growing tables of `pserver.sparse` execute them. A row is created by its first
gradient, and its initial values depend only on (seed, id), not on the order of requests or the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle import graph
from paddle.backend import to_host
from paddle.errors import PserverError
from paddle.fluid.errors import FluidError
from paddle.fluid.files.table_states import CLOCKS, rule_line
from paddle.fluid.files.variable_files import write_rows
from paddle.fluid.run.scope import Scope
from paddle.graph.operator import Operator
from paddle.ops.base.selected_rows import SelectedRows
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.blocks import Block
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.ticks import later
from paddle.pserver.wire.named_values import Ids, Rows, Value

_LOOKUP = "lookup_sparse_table"
_RULE, _OWN = "sgd", "update_sparse_table"
_LOADED_ROWS = 1 << 16
_log = logging.getLogger(__name__)


class GrowingRows:
    """A server's rows of one distributed embedding. Belongs to the engine's thread.

    Attributes:
        name: name of the table.
        block: number of the block that updates the table.
        lookup_name: the table's name in fetches.
    """

    def __init__(
        self, program: graph.Program, block: int, lookup_name: str, lookup: Operator, scope: Scope
    ) -> None:
        """Start with the rows in the scope: none, or those of a file.

        Args:
            block: number of the block that updates the table.

        Raises:
            FluidError: the block's update is not supported.
        """
        self.block, self.lookup_name, self._scope = block, lookup_name, scope
        (self.name,) = lookup.inputs["W"]
        update = program.blocks[block].ops[-1]
        if update.type not in (_RULE, _OWN) or update.inputs["Param"] != (self.name,):
            raise FluidError(
                f"table {self.name!r}: expected an update by {_RULE} or {_OWN}, got {update.type}"
            )
        said: Any = update.attrs
        self._optimizer, self._scale = OptimizerSpec(_RULE), 1.0
        if update.type == _OWN:
            hyper = dict(zip(said["hyper_names"], said["hyper_values"], strict=True))
            self._optimizer, self._scale = OptimizerSpec(said["rule"], hyper), float(said["scale"])
        (self._rate,) = update.inputs["LearningRate"]
        self._height, width = program.global_block().var(self.name).shape
        self._unknown: Any = "zero" if lookup.attrs["is_test"] else "initial"
        begins: Any = lookup.attrs
        initial = Initial(*(begins[f"initial_{what}"] for what in ("kind", "mean", "spread", "seed")))
        self._spec = TableSpec(ParameterSpec(self.name, (1, width), sparse=True), initial)
        self._loaded = scope.get(self.name)
        if not isinstance(self._loaded, SelectedRows):
            raise FluidError(f"table {self.name!r}: run the server's startup program first")

    @cached_property
    def _table(self) -> HashTable:
        """The rows; created by the first request."""
        table = HashTable(self._spec, self._optimizer)
        for rows in self._loaded_rows():
            self._enter(table, rows)
        values = np.zeros((0, self._spec.width), np.float32)
        self._loaded = SelectedRows(np.zeros(0, np.int64), values, self._height)
        self._scope.set(self.name, self._loaded)
        return table

    def kept(self) -> Iterator[Rows]:
        """Yield all rows in blocks, (n, width), with their state if the rule has any (see `_whole`)."""
        if "_table" not in vars(self):  # no request created the table: only loaded rows
            yield from self._loaded_rows()
            return
        height = self._table.clock if self._table.shape[0] > 1 else self._height
        for block in self._table.snapshot():
            yield Rows(block.ids, self._whole(block), height)
        if self._table.shape[0] > 1 and not len(self._table):
            yield Rows(np.zeros(0, np.int64), np.zeros((0, _columns(self._table)), np.float32), height)

    def take_up(self, rows: Value) -> None:
        """Restore rows that an earlier process of this server saved; other rows do not change."""
        assert isinstance(rows, Rows)
        self._enter(self._table, rows)

    def _loaded_rows(self) -> Iterator[Rows]:
        rows, values = (np.asarray(to_host(each)) for each in (self._loaded.rows, self._loaded.values))
        for start in range(0, max(len(rows), 1), _LOADED_ROWS):
            part = slice(start, start + _LOADED_ROWS)
            yield Rows(rows[part].copy(), np.ascontiguousarray(values[part]), self._loaded.height)

    def _enter(self, table: HashTable, rows: Rows) -> None:
        width = self._spec.width
        if table.shape[0] == 1 or rows.values.shape[1] != _columns(table):
            if rows.values.shape[1] != width:
                _log.warning(
                    "table %r: the saved row states belong to a different update rule and are not used; %s starts "
                    "from scratch",
                    self.name,
                    self._optimizer.rule,
                )
            if len(rows.ids):
                table.assign(rows.ids, np.ascontiguousarray(rows.values[:, :width]))
            return
        table.clock = max(table.clock, rows.height)
        if not len(rows.ids):
            return
        halves = rows.values[:, -CLOCKS:].astype(np.uint32)
        parts = rows.values[:, :-CLOCKS].reshape(len(rows.ids), -1, width).swapaxes(0, 1)
        ticks, clocks = (halves[:, at] * np.uint32(1 << 16) + halves[:, at + 1] for at in (0, 2))
        table.fill(Block(rows.ids.copy(), parts.copy(), later(ticks, np.uint32(table.clock) - clocks)))

    def _whole(self, block: Block) -> npt.NDArray[np.float32]:
        """Return the complete state of rows: (n, width), or for a rule with states (n, parts width + 4).

        The height of the latter is the clock, which advances even on a server without rows.
        """
        if len(block.parts) == 1:
            values: npt.NDArray[np.float32] = block.parts[0]
            return values
        return np.concatenate([block.parts[0], self._states(block)], axis=1)

    def _states(self, block: Block) -> npt.NDArray[np.float32]:
        """Return the rule's state of rows: (n, (parts - 1) width + 4)."""
        ticks, clock = block.ticks, np.full_like(block.ticks, self._table.clock)
        halves = np.stack([ticks >> 16, ticks & 0xFFFF, clock >> 16, clock & 0xFFFF], axis=1)
        return np.concatenate([*block.parts[1:], halves.astype(np.float32)], axis=1)

    def check(self, name: str, value: Value, *, is_first: bool = False) -> None:
        """Check that a value is a gradient of rows or, with `is_first`, initial rows.

        Raises:
            PserverError: the value is not such a gradient, or not such rows.
        """
        width = self._spec.width
        widths = (width, _columns(self._table)) if is_first else (width,)
        if (
            not isinstance(value, Rows)
            or value.values.ndim != 2
            or value.values.shape[1] not in widths
            or value.values.dtype != np.float32
        ):
            raise PserverError(f"gradient {name!r}: expected selected rows (n, {width}) float32")
        if not np.isfinite(value.values).all():
            raise PserverError(f"gradient {name!r} contains NaN or infinity; nothing was changed")

    def reserve(self, gradients: Sequence[Value]) -> None:
        """Check that there is room for an `update` with these ids.

        Raises:
            PserverError: there is not enough room; nothing was changed.
        """
        self._table.reserve(self._row_gradients(gradients))

    def update(self, gradients: Sequence[Value]) -> None:
        """Apply one step with the sum of gradients, added in order; call `reserve` first."""
        rate = np.asarray(to_host(self._scope.get(self._rate))).reshape(-1)[0]
        self._table.apply(self._row_gradients(gradients), float(rate))

    def _row_gradients(self, gradients: Sequence[Value]) -> list[RowGradient]:
        scale = np.float32(self._scale)
        return [
            RowGradient(each.ids, each.values if scale == 1 else each.values * scale)
            for each in gradients
            if isinstance(each, Rows)
        ]

    def lookup(self, ids: Ids) -> Value:
        """Return the rows of ids as (n, width).

        An id without a row gets initial values (or zeros), and no row is created.
        """
        return self._table.lookup(ids, self._unknown)

    def save(self, path: Path, states: Path) -> None:
        """Write all rows to a file as selected rows, one block at a time, and their rule's states to a second file.

        Raises:
            PserverError: a file cannot be written.
        """
        table, width = self._table, self._spec.width
        try:
            states.unlink(missing_ok=True)
            self._write(path, width, self._height, lambda block: block.parts[0])
            if table.shape[0] > 1:
                line = rule_line(self._optimizer)
                self._write(states, _columns(table) - width, table.clock, self._states, line)
        except OSError as error:
            raise PserverError(f"cannot write {path}: {error.strerror}") from error

    def _write(
        self, path: Path, width: int, height: int, values: Callable[[Block], Any], rule: str = ""
    ) -> None:
        # The table does not change meanwhile, so all copies have the same rows in the same order.
        ids, rows = (iter(self._table.snapshot()) for _ in range(2))
        shape = (len(self._table), width)
        write_rows(path, shape, height, (block.ids for block in ids), map(values, rows), rule)


def _columns(table: HashTable) -> int:
    """Return the width of rows with the complete state of the rule."""
    return table.shape[0] * table.spec.width + CLOCKS


def growing_rows(program: graph.Program, serve: Operator, scope: Scope) -> list[GrowingRows]:
    """Return the tables of distributed embeddings that a server's program serves."""
    named: Any = serve.attrs["prefetch_var_name_to_block_id"]
    tables = []
    for text in named:
        name, _, number = text.rpartition(":")
        lookup = program.blocks[int(number)].ops[-1]
        if lookup.type == _LOOKUP:
            (table,) = lookup.inputs["W"]
            blocks: Any = serve.attrs["optimize_blocks"]
            (block,) = (idx for idx in blocks if _updates(program.blocks[idx], table))
            tables.append(GrowingRows(program, block, name, lookup, scope))
    return tables


def _updates(block: graph.Block, table: str) -> bool:
    return any(op.inputs.get("Param") == (table,) for op in block.ops)
