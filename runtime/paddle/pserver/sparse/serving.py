# SPDX-License-Identifier: Apache-2.0
"""A growing table on one of several servers, which checks data from the wire before it changes anything.

An id can be any int64 number; `mixing.owners` determines its server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.sparse.blocks import Block
from paddle.pserver.sparse.budget import EXTRA, MOST_SHOWN
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.mixing import owners
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.tiered_table import TieredTable
from paddle.pserver.sparse.walk import TableRows
from paddle_node.contract.classes import dataclass

Ids = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class GrowingShare:
    """The part of a growing table on one server; `server` is its index among the `num_servers` servers with rows."""

    spec: TableSpec
    server: int
    num_servers: int

    @property
    def width(self) -> int:
        """The number of elements per row."""
        return self.spec.width

    def holds(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return a mask (n,) of the ids (n,) that belong to this server."""
        if self.num_servers == 1:
            return np.ones(len(ids), np.bool_)
        mine: npt.NDArray[np.bool_] = owners(ids, self.num_servers) == self.server
        return mine

    def check_ids(self, ids: npt.NDArray[np.generic]) -> None:
        """Check that ids from the wire have the right shape and dtype, and belong to this server.

        Raises:
            PserverError: the ids are not (n,) int64, or an id belongs to a different server.
        """
        what = f"table {self.spec.name}"
        if ids.ndim != 1 or ids.dtype != np.int64:
            raise PserverError(f"{what}: expected row ids as (n,) int64, got {ids.shape} {ids.dtype}")
        if self.num_servers > 1:
            servers = owners(np.ascontiguousarray(ids).view(np.int64), self.num_servers)
            wrong = servers != self.server
            if wrong.any():
                raise PserverError(
                    f"{what}: row {ids[wrong][0]} belongs to server {servers[wrong][0]} of "
                    f"{self.num_servers}, but this is server {self.server}; give every trainer the same "
                    "list of servers"
                )

    def check(self, gradient: RowGradient) -> None:
        """Check a gradient from the wire. Its ids can be in any order and may repeat.

        Raises:
            PserverError: the ids or values are invalid for this table, or a value is NaN or infinite.
        """
        ids, values = gradient
        self.check_ids(ids)
        what, width = f"table {self.spec.name}", self.spec.width
        is_wide = self.spec.budget.is_scored and values.shape[1:] == (width + EXTRA,)
        if values.shape != (len(ids), width + EXTRA * is_wide) or values.dtype != np.float32:
            also = f", or {width + EXTRA} columns with shows and clicks" if self.spec.budget.is_scored else ""
            raise PserverError(
                f"row gradient of {what}: expected {(len(ids), width)} float32{also}, "
                f"got {values.shape} {values.dtype}"
            )
        if is_wide and not ((values[:, width:] >= 0) & (values[:, width:] <= MOST_SHOWN)).all():
            raise PserverError(f"gradient of {what}: expected shows and clicks from 0 to {MOST_SHOWN:g}")
        # One sum takes far less time than a check of every element; einsum takes half the time of pairwise summation.
        # Only if the sum contains NaN or infinity, each element is checked.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.einsum("i->", values.reshape(-1))):
                return
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            raise PserverError(
                f"gradient of {what}: row {ids[~finite][0]} contains NaN or infinity; nothing was changed"
            )


class ServedTable:
    """One server's rows of a growing table, with checks of data from the wire. Not thread-safe.

    Attributes:
        table: the rows themselves, with their `snapshot` and `resume`.
    """

    def __init__(self, share: GrowingShare, optimizer: OptimizerSpec) -> None:
        """Create an empty table.

        Raises:
            ConfigError: the optimizer cannot update single rows.
            PserverError: the table's file on disk cannot be created.
        """
        self.share = share
        self.table = (TieredTable if share.spec.budget.disk else HashTable)(share.spec, optimizer)

    @property
    def width(self) -> int:
        """The number of elements per row."""
        return self.share.spec.width

    @property
    def is_untouched(self) -> bool:
        """Return whether the table has no rows and has had no batch."""
        return not (self.table.clock or len(self.table))

    def rows(self, ids: Ids) -> Values:
        """Return the values (n, width) of ids (n,), in their order; ids may repeat. Does not change the table.

        Raises:
            PserverError: see `GrowingShare.check_ids`.
        """
        self.share.check_ids(ids)
        return self.rows_here(ids)

    def rows_here(self, ids: Ids) -> Values:
        """Return rows like `rows`, for ids that have already been checked."""
        return self.table.lookup(ids)

    def check_ids(self, ids: Ids) -> None:
        """Raise PserverError if ids from the wire are not (n,) int64, or one belongs to a different server."""
        self.share.check_ids(ids)

    def put(self, rows: TableRows) -> None:
        """Set the values of rows from the wire, before training.

        Raises:
            PserverError: the rows are invalid for this table, or there is no room for them.
        """
        self.share.check(RowGradient(rows.ids, rows.rows))
        n, name, size = len(rows.ids), self.share.spec.name, self.table.state_size
        if rows.rows.shape[1] != self.width:  # shows and clicks are of gradients alone
            raise PserverError(f"table {name}: expected rows of width {self.width}, got {rows.rows.shape[1]}")
        if rows.ages.shape != (n,) or rows.ages.dtype != np.int32:
            raise PserverError(
                f"table {name}: ages: expected ({n},) int32, got {rows.ages.shape} {rows.ages.dtype}"
            )
        states = rows.states
        if states is not None and (states.shape != (n, size) or states.dtype != np.float32):
            raise PserverError(
                f"table {name}: row states: the table's optimizer stores {size} numbers for each row; "
                f"expected ({n}, {size}) float32, got {states.shape} {states.dtype}"
            )
        if states is not None and not np.isfinite(states).all():
            raise PserverError(f"table {name}: states of rows contain NaN or infinity; nothing was changed")
        if len(np.unique(rows.ids)) != n:
            raise PserverError(f"table {name}: rows to set: an id is repeated")
        self.table.put(rows)

    def fill(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Store the rows of a checkpoint's block that belong to this server; for `arrays`, see `Block.stored`.

        Raises:
            CheckpointError: the block is of a different dtype or shape.
            PserverError: there is no room for the rows.
        """
        spec = self.share.spec
        block = Block.read(arrays, spec.name, self.table.shape, spec.halves, self.share.holds)
        if len(block.ids):
            self.table.fill(block)

    def check(self, gradient: RowGradient) -> None:
        """Raise PserverError if a gradient from the wire is invalid; see `GrowingShare.check`."""
        self.share.check(gradient)

    def update(self, gradients: Sequence[RowGradient], learning_rate: float) -> None:
        """Take one step with the sum of checked gradients; see `HashTable.update` for its errors."""
        self.table.update(gradients, learning_rate)

    def catch_up(self, learning_rate: float) -> None:
        """Apply pending decay to all rows, at this learning rate."""
        self.table.catch_up(learning_rate)
