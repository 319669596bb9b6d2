# SPDX-License-Identifier: Apache-2.0
"""A growing table as one server of several serves it: what comes from the wire is checked before anything changes.

An id may be any int64 number, and lies on the server that `mixing.owners` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.sparse.mixing import owners
from paddle.pserver.sparse.plain_table import PlainTable
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.warming import warming

if TYPE_CHECKING:
    from paddle.pserver.sparse.hash_table import HashTable

Ids = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]

# What the plain form does in some tenths of a second: more than that waits for compiled loops.
_MOST_IDS, _MOST_FLOATS, _MOST_ROWS = 1 << 14, 1 << 20, 1 << 15


@dataclass(frozen=True, slots=True)
class GrowingShare:
    """The rows of a growing table on server number `server` of `num_servers` that have rows of it."""

    spec: TableSpec
    server: int
    num_servers: int

    def holds(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return which of these ids lie here."""
        if self.num_servers == 1:
            return np.ones(len(ids), np.bool_)
        mine: npt.NDArray[np.bool_] = owners(ids, self.num_servers) == self.server
        return mine

    def check_ids(self, ids: npt.NDArray[np.generic]) -> None:
        """Check ids from the wire.

        Raises:
            PserverError: they are not (n,) int64, or one lies on another server.
        """
        what = f"table {self.spec.name}"
        if ids.ndim != 1 or ids.dtype != np.int64:
            raise PserverError(f"{what}: expected row ids as (n,) int64, got {ids.shape} {ids.dtype}")
        if self.num_servers > 1:
            servers = owners(np.ascontiguousarray(ids).view(np.int64), self.num_servers)
            wrong = servers != self.server
            if wrong.any():
                raise PserverError(
                    f"{what}: row {ids[wrong][0]} lies on server {servers[wrong][0]} of {self.num_servers}, "
                    f"this is {self.server}; give every trainer the same list of servers"
                )

    def check(self, gradient: RowGradient) -> None:
        """Check a gradient from the wire. Its ids may come in any order, and repeat.

        Raises:
            PserverError: its ids or values are not what this table takes, or one is NaN or infinite.
        """
        ids, values = gradient
        self.check_ids(ids)
        what, expected = f"table {self.spec.name}", (len(ids), self.spec.width)
        if values.shape != expected or values.dtype != np.float32:
            raise PserverError(
                f"row gradient of {what}: expected {expected} float32, got {values.shape} {values.dtype}"
            )
        # A sum is finite far faster than every element is checked; only a strange sum needs the slow look.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(values.sum()):
                return
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            raise PserverError(
                f"gradient of {what}, row {ids[~finite][0]}, is NaN or infinite; nothing was changed"
            )


class ServedTable:
    """One server's rows. Not thread-safe.

    They begin in plain form, so that a new machine, where loops are compiled for seconds, answers at once. Between
    two batches, once the loops are loaded, all rows move over into a `HashTable`, bit by bit. Before they are loaded
    only who comes with many rows, or needs the `table` itself, waits.
    """

    def __init__(self, share: GrowingShare, optimizer: OptimizerSpec) -> None:
        """Make an empty table.

        Raises:
            ConfigError: the optimizer cannot update single rows.
        """
        self.share = share
        self._optimizer = optimizer
        self._rows: PlainTable | HashTable = PlainTable(share.spec, optimizer)
        self._loops = warming()

    @property
    def table(self) -> HashTable:
        """The rows themselves, with their `snapshot` and `restore`; waits for compiled loops.

        Raises:
            PserverError: there is no memory.
        """
        if not isinstance(self._rows, PlainTable):
            return self._rows
        self._loops.result()
        from paddle.pserver.sparse.hash_table import HashTable  # the compiler, which is loaded by now

        table = HashTable(self.share.spec, self._optimizer)
        plain = self._rows
        table.restore(plain.header, [plain.whole()])
        self._rows = table
        return table

    @property
    def is_untouched(self) -> bool:
        """Whether there was no batch yet, and there are no rows."""
        return not (self._rows.clock or len(self._rows))

    def rows(self, ids: Ids) -> Values:
        """Return the values (n, width) of ids (n,), in their order; ids may repeat. Changes nothing.

        Raises:
            PserverError: see `GrowingShare.check_ids`.
        """
        self.share.check_ids(ids)
        return self.rows_here(ids)

    def rows_here(self, ids: Ids) -> Values:
        """Do what `rows` does with ids that were checked."""
        return self._form_for(len(ids), 0).lookup(ids)

    def check_ids(self, ids: Ids) -> None:
        """See `GrowingShare.check_ids`."""
        self.share.check_ids(ids)

    def check(self, gradient: RowGradient) -> None:
        """See `GrowingShare.check`."""
        self.share.check(gradient)

    def reserve(self, gradients: Sequence[RowGradient]) -> None:
        """Make sure that an `update` with these checked gradients cannot fail.

        Raises:
            PserverError: there is no room for new rows; nothing was changed.
        """
        count = sum(len(gradient.rows) for gradient in gradients)
        self._form_for(count, count).reserve(gradients)

    def update(self, gradients: Sequence[RowGradient], learning_rate: float) -> None:
        """Take one step with the sum of checked gradients, added in the order given."""
        self._rows.update(gradients, learning_rate)

    def catch_up(self, learning_rate: float) -> None:
        """Bring the decay of all rows to the present."""
        self._rows.catch_up(learning_rate)

    def _form_for(self, count: int, new: int) -> PlainTable | HashTable:
        """Return the form that a request for so many ids, at most `new` of them new, is answered by.

        Raises:
            PserverError: there is no memory for the compiled form; nothing was changed.
        """
        if isinstance(self._rows, PlainTable):
            fits = count <= _MOST_IDS and count * self.share.spec.width <= _MOST_FLOATS
            is_small = fits and len(self._rows) + new <= _MOST_ROWS
            # Where there are no loops the plain form goes on, however slowly.
            if (not is_small or self._loops.done()) and self._loops.exception() is None:
                return self.table
        return self._rows
