# SPDX-License-Identifier: Apache-2.0
"""Parses ids in all forms that modules accept: tensors, pairs with offsets, nested and torchrec's jagged tensors.

Jagged tensors are recognized by their methods, so torchrec is not imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paddle.errors import ConfigError
from paddle_node.contract.classes import NamedTuple

Ids = npt.NDArray[np.int64]


class TableIds(NamedTuple):
    """The parsed ids for one table in a call of a module.

    Attributes:
        flat: the ids, (m,).
        shape: the original shape of the ids.
        offsets: (B,), the start of each sequence or bag in `flat`; None means `shape` has no ragged part.
        has_end: whether `offsets` is (B + 1,), with the end of the last one.
        weights: (m,) weights of a jagged tensor, or None.
    """

    flat: Any
    shape: tuple[int, ...]
    offsets: Any = None
    has_end: bool = False
    weights: Any = None


class Bags(NamedTuple):
    """Ids (m,) int64 in bags that begin at the positions `starts` (B,), with weights (m,) or None."""

    flat: Any
    starts: Any
    weights: Any


def by_table(given: Any, tables: Collection[str], *, is_one: bool) -> dict[str, Any]:
    """Return the arguments of a module's call, by table name.

    Args:
        given: a mapping, or a torchrec KeyedJaggedTensor, whose keys without a table are ignored; with `is_one` also
            the plain argument for the only table.
        tables: the names of the tables.
        is_one: whether a plain argument is allowed.

    Raises:
        ConfigError: names are unknown, or missing.
    """
    if callable(getattr(given, "to_dict", None)):
        found = {name: each for name, each in given.to_dict().items() if name in tables}
        if not found:
            raise ConfigError(f"ids: none of the keys of the jagged tensor is a table: {', '.join(tables)}")
        return found
    if is_one:
        return dict.fromkeys(tables, given)
    if not isinstance(given, Mapping) or not given.keys() <= set(tables):
        got = sorted(given) if isinstance(given, Mapping) else type(given).__name__
        raise ConfigError(f"expected ids for the tables {', '.join(tables)}, got {got}")
    return dict(given)


def read(ids: Any, *, has_end: bool = False) -> TableIds:
    """Parse the ids for one table.

    Args:
        ids: a tensor, a pair (values, offsets), a nested tensor or a torchrec JaggedTensor.
        has_end: whether the offsets of a pair also include the end of the last bag.

    Raises:
        ConfigError: the argument is none of these.
    """
    if not isinstance(ids, torch.Tensor) and callable(getattr(ids, "weights_or_none", None)):
        values = ids.values()
        return TableIds(values, tuple(values.shape), ids.offsets(), True, ids.weights_or_none())
    ids, *more = ids if isinstance(ids, tuple) else (ids,)
    if wrong := [each for each in (ids, *more) if not isinstance(each, torch.Tensor)]:
        raise ConfigError(f"ids: expected a tensor of int64 or int32, got {type(wrong[0]).__name__}")
    if more:
        (offsets,) = more
        return TableIds(ids, tuple(ids.shape), offsets, has_end)
    if ids.is_nested:
        if ids.layout != torch.jagged:
            ids = torch.nested.nested_tensor(list(ids.unbind()), dtype=ids.dtype, layout=torch.jagged)
        return TableIds(ids.values(), tuple(ids.values().shape), ids.offsets(), has_end=True)
    return TableIds(ids.reshape(-1), tuple(ids.shape))


def bags_of(given: TableIds, weights: Any, padding_idx: int | None) -> Bags:
    """Split ids into bags, without padding ids. `weights` has the form of the ids, or is None.

    Raises:
        ConfigError: flat ids have no offsets, or the weights have a different shape than the ids.
    """
    if given.offsets is not None:
        starts = given.offsets[:-1] if given.has_end else given.offsets
    elif len(given.shape) == 2:
        starts = torch.arange(given.shape[0], device=given.flat.device) * given.shape[1]
    else:
        raise ConfigError(f"ids: expected shape (bags, length), or offsets as well, got {given.shape}")
    if weights is None:
        weights = given.weights
    else:
        weights = (read(weights).flat if weights.is_nested else weights).reshape(-1)
        if weights.shape != given.flat.shape:
            raise ConfigError(
                f"per_sample_weights: expected one for each of {len(given.flat)} ids, got {len(weights)}"
            )
    if padding_idx is None or (keep := given.flat != padding_idx).all():
        return Bags(given.flat, starts, weights)
    before = torch.nn.functional.pad(keep.cumsum(0), (1, 0))
    return Bags(given.flat[keep], before[starts.long()], None if weights is None else weights[keep])


def on_host(ids: Any) -> Ids:
    """Return ids as a numpy array in host memory. Raises ConfigError if the ids are not int64 or int32."""
    if ids.dtype not in (torch.int64, torch.int32):
        raise ConfigError(f"ids: expected int64 or int32, got {ids.dtype}")
    found: Ids = ids.detach().cpu().numpy()
    return found
