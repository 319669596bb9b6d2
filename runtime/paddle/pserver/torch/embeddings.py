# SPDX-License-Identifier: Apache-2.0
"""The modules `Embedding` and `EmbeddingBag`, which compute the same values and gradients as those in `torch.nn`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from paddle.errors import ConfigError
from paddle.pserver.client.declaration import GrowingTable
from paddle.pserver.torch.ids import bags_of, read
from paddle.pserver.torch.tables import Tables

_MODES = ("sum", "mean", "max")


class Embedding(Tables):
    """An embedding for any int64 ids, with rows in growing tables and the interface of `torch.nn.Embedding`."""

    def forward(self, ids: Any) -> Any:
        """Return the rows for the given ids, float32.

        Args:
            ids: int64 or int32 (...), or a jagged tensor of sequences from torch or torchrec. For several tables: a
                dict by name, or a KeyedJaggedTensor.

        Returns:
            (..., dim), or a nested tensor (B, *, dim); for several tables a dict by name.

        Raises:
            ConfigError: the table does not exist, or the ids are not integers.
        """
        given = {name: read(each) for name, each in self.by_name(ids).items()}
        kept = {
            name: None if self.padding_idx is None else (each.flat != self.padding_idx).nonzero().squeeze(1)
            for name, each in given.items()
        }
        flat = {
            name: each.flat if (keep := kept[name]) is None else each.flat[keep]
            for name, each in given.items()
        }
        out = {}
        for name, (rows, inverse) in self.look_up(flat).items():
            values, each = torch.nn.functional.embedding(inverse, rows), given[name]
            if (keep := kept[name]) is not None:
                values = rows.new_zeros(len(each.flat), rows.shape[1]).index_copy(0, keep, values)
            if each.has_end:
                out[name] = torch.nested.nested_tensor_from_jagged(values, each.offsets)
            else:
                out[name] = values.reshape(*each.shape, rows.shape[1])
        return next(iter(out.values())) if self._is_one else out


class EmbeddingBag(Tables):
    """An embedding bag for any int64 ids: sums, means or maxima of rows, as of `torch.nn.EmbeddingBag`."""

    def __init__(
        self,
        tables: str | Mapping[str, GrowingTable],
        dim: int | None = None,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        **table: Any,
    ) -> None:
        """Declare the tables and how to combine the rows of a bag; see `Tables`.

        Args:
            mode: "sum", "mean" or "max".
            include_last_offset: whether offsets are (B + 1,), with the end of the last bag.
        """
        super().__init__(tables, dim, padding_idx=padding_idx, **table)
        if mode not in _MODES:
            raise ConfigError(f"EmbeddingBag: mode: expected one of {', '.join(_MODES)}, got {mode!r}")
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, ids: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """Return one vector per bag, float32; 0 for an empty bag.

        Args:
            ids: (B, length); or (m,) with `offsets`, or a pair of both; or a jagged tensor of B sequences from torch
                or torchrec. For several tables: a dict by name, or a KeyedJaggedTensor.
            offsets: (B,), for one table: the position in ids at which each bag begins.
            per_sample_weights: one weight per id, which may require a gradient; only for mode "sum". For several
                tables: a dict by name. The weights of torchrec's tensors are also used.

        Returns:
            (B, dim); for several tables a dict by name.

        Raises:
            ConfigError: the table does not exist, the ids are not integers, or the weights do not match the ids.
        """
        named = self.by_name(ids if offsets is None else (ids, offsets))
        weights = {} if per_sample_weights is None else self.by_name(per_sample_weights)
        bags = {
            name: bags_of(read(each, has_end=self.include_last_offset), weights.get(name), self.padding_idx)
            for name, each in named.items()
        }
        out = {}
        for name, (rows, inverse) in self.look_up({name: each.flat for name, each in bags.items()}).items():
            _, starts, theirs = bags[name]
            out[name] = torch.nn.functional.embedding_bag(
                inverse,
                rows,
                starts.to(inverse.dtype),
                mode=self.mode,
                per_sample_weights=None if theirs is None else theirs.to(rows.dtype),
            )
        return next(iter(out.values())) if self._is_one else out
