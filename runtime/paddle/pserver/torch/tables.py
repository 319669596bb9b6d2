# SPDX-License-Identifier: Apache-2.0
"""The base class of the embedding modules, which have no parameters: their rows are on the parameter servers.

`state_dict` contains the names of the tables; the servers' checkpoints save the rows. A module that was copied or
loaded with `torch.load` needs its own `ServerOptimizer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from paddle.errors import ConfigError
from paddle.pserver.client.declaration import GrowingTable
from paddle.pserver.torch.ids import by_table


class Servers(Protocol):
    """The interface of `ServerOptimizer` that tables use."""

    @property
    def has_dense(self) -> bool:
        """Return whether the servers also train dense parameters."""

    def rows(self, ids: Mapping[str, Any], *, records: bool) -> dict[str, tuple[Any, Any]]:
        """Return, for each table, the distinct rows (n, dim), and the position of each id (m,) in them."""


class Tables(torch.nn.Module):  # type: ignore[misc]
    """The base class of `Embedding` and `EmbeddingBag`: growing tables by name, and the servers that store them.

    Attributes:
        tables: `GrowingTable` by name.
        padding_idx: the id without a row, or None.
    """

    def __init__(
        self,
        tables: str | Mapping[str, GrowingTable],
        dim: int | None = None,
        *,
        padding_idx: int | None = None,
        **table: Any,
    ) -> None:
        """Declare the tables, which `ServerOptimizer` creates.

        Args:
            tables: the name of one table, which the other arguments describe; or a dict of several `GrowingTable`.
            dim: number of elements per row.
            padding_idx: this id, which may be negative, gives 0, is left out of bags and gets no gradient.
            table: other arguments of `GrowingTable`, such as std, optimizer, min_count, max_age.

        Raises:
            ConfigError: an argument is unknown, or is given for a dict of tables.
        """
        super().__init__()
        if not isinstance(tables, str) and (dim is not None or table):
            raise ConfigError(
                f"{type(self).__name__}: dim and other table arguments cannot be combined with a dict of tables; "
                "give them to each GrowingTable"
            )
        self._is_one = isinstance(tables, str)
        self.tables = {tables: GrowingTable(dim=dim, **table)} if isinstance(tables, str) else dict(tables)
        self.padding_idx = padding_idx
        self._servers: Servers | None = None
        self._rows: Any = None

    def attach(self, servers: Servers) -> None:
        """Set the servers that store the tables; `torch.compile` does not trace requests to them."""
        self._servers, self._rows = servers, torch.compiler.disable(servers.rows)

    def extra_repr(self) -> str:
        """Return the text that PyTorch prints for the module."""
        return ", ".join(f"{name}: {table.width}" for name, table in self.tables.items())

    def get_extra_state(self) -> dict[str, Any]:
        """Return the module's entry in `state_dict`: the width of each table, without rows."""
        return {"tables": self._widths(), "rows": "on the parameter servers, and in their checkpoints"}

    def set_extra_state(self, state: Any) -> None:
        """Check that a saved module has the same tables. Raises ConfigError if the tables differ."""
        if state["tables"] != self._widths():
            raise ConfigError(f"load_state_dict: expected the tables {self._widths()}, got {state['tables']}")

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy of the module, which has no servers yet."""
        return {**self.__dict__, "_servers": None, "_rows": None}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        """Reject values that would be lost: a weight, or dense parameters that the next step would overwrite."""
        if self._servers is not None and self._servers.has_dense:
            raise ConfigError(
                "load_state_dict: the servers hold this model's parameters, which would overwrite it "
                "in the next step; load before ServerOptimizer is created, on servers without values"
            )
        if prefix + "weight" in state_dict:
            more[-1].append(
                f"{prefix}weight: rows of {', '.join(self.tables)} are on the parameter servers: "
                "import them there, and remove the weight from the state_dict"
            )
        super()._load_from_state_dict(state_dict, prefix, *more)

    def _widths(self) -> dict[str, int]:
        return {name: table.width for name, table in self.tables.items()}

    def by_name(self, given: Any) -> dict[str, Any]:
        """Return a call's argument as a dict by table name; for a single table, a plain argument is accepted."""
        return by_table(given, self.tables, is_one=self._is_one)

    def look_up(self, flat: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return the distinct rows (n, dim) of each table, and the position of each id in them, (m,).

        Raises:
            ConfigError: no `ServerOptimizer` is attached.
        """
        if self._servers is None:
            raise ConfigError(
                f"{type(self).__name__} of {', '.join(self.tables)} has no servers yet: create "
                "ServerOptimizer(model, ...) first"
            )
        found: dict[str, tuple[Any, Any]] = self._rows(flat, records=self.training)
        return found
