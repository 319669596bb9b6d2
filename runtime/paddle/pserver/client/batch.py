# SPDX-License-Identifier: Apache-2.0
"""Batches of sparse rows: each distinct row that a batch needs is pulled and pushed only once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.optim.spec import RowGradient
from paddle.pserver.client.interop import HostArray, counted, float_rows, host_array, read_ids
from paddle.pserver.sparse.distinct import DistinctIds

Ids = npt.NDArray[np.int64]


class Batch:
    """The distinct rows of one sparse tensor that a batch needs. `rows[inverse]` gives the rows of the ids as given.

    Attributes:
        name: name of the tensor.
        ids: (n,) int64: the distinct ids, in ascending order.
        inverse: int64, in the shape of the given ids: the position of each id in `ids`.
    """

    def __init__(self, name: str, ids: Any, width: int, bring: Callable[[], None]) -> None:
        """Find the distinct ids among the given ones.

        Args:
            ids: (...) int64 or int32.
            width: elements of a row.
            bring: called when `rows` is first used before they have arrived; must lead to a call of `take`.

        Raises:
            ConfigError: the ids are not an array of int64 or int32.
        """
        given = read_ids(ids, f"row ids of tensor {name}")
        self._distinct = DistinctIds.of(np.ascontiguousarray(given.reshape(-1)))
        self.name, self.ids = name, self._distinct.ids
        self.inverse: Ids = self._distinct.inverse.reshape(given.shape)
        self._width, self._bring = width, bring
        self._rows: HostArray | None = None
        self._grad: HostArray | None = None
        self._counts: HostArray | None = None

    @property
    def has_rows(self) -> bool:
        """Return whether the rows have arrived, so that reading `rows` sends no request."""
        return self._rows is not None

    @property
    def rows(self) -> HostArray:
        """The rows (n, width) float32 of `ids`, as of their arrival. The caller may modify the array."""
        if self._rows is None:
            self._bring()
        assert self._rows is not None
        return self._rows

    @property
    def grad(self) -> HostArray | None:
        """The gradient (n, width) float32 of `rows`, or None. Can be set to any array that a push accepts."""
        return self._grad

    @grad.setter
    def grad(self, given: Any) -> None:
        if given is None:
            self._grad = None
            return
        what = f"gradient of the batch of tensor {self.name}"
        array = host_array(given, what)
        if array.shape != (len(self.ids), self._width) or array.dtype != np.float32:
            raise ConfigError(
                f"{what}: expected one per row, {(len(self.ids), self._width)} float32, got "
                f"{array.shape} {array.dtype}; `total` sums those of repeated ids"
            )
        self._grad = np.ascontiguousarray(array)

    def total(self, values: Any) -> HostArray:
        """Sum the gradients (..., width) float32 of the given ids into (n, width), one row per distinct id.

        Gradients of one id are added in the order of the ids. Raises ConfigError if a shape or dtype is wrong.
        """
        found = float_rows(values, self.inverse.shape, f"gradient of the batch of tensor {self.name}")
        return self._distinct.add_up(found)

    def count(self, shows: Any, clicks: Any) -> None:
        """Set the numbers of shows and clicks; each array has the shape of the given ids.

        A push sends them with `grad`, to update row scores.
        """
        what = f"batch of tensor {self.name}"
        columns = [counted(each, self.inverse.shape, what) for each in (shows, clicks)]
        self._counts = self._distinct.add_up(np.concatenate(columns, axis=1))

    @property
    def gradient(self) -> RowGradient | None:
        """The gradient to push: `grad` with the shows and clicks of `count`; None if `grad` is None."""
        if self._grad is None:
            return None
        columns = [self._grad] if self._counts is None else [self._grad, self._counts]
        return RowGradient(self.ids, np.concatenate(columns, axis=1) if len(columns) > 1 else self._grad)

    def take(self, rows: HostArray) -> None:
        """Set `rows` to the rows (n, width) float32 that the servers sent."""
        self._rows = rows


def batches_of(given: Batch | Mapping[str, Batch] | Sequence[Batch]) -> dict[str, Batch]:
    """Return batches by tensor name, given one batch or several.

    Raises ConfigError if an item is not a batch, or two batches have the same tensor.
    """
    every = (
        [given] if isinstance(given, Batch) else list(given.values() if isinstance(given, Mapping) else given)
    )
    found: dict[str, Batch] = {}
    for each in every:
        if not isinstance(each, Batch):
            raise ConfigError(f"ahead: expected a batch from Client.batch, got {type(each).__name__}")
        if each.name in found:
            raise ConfigError(f"ahead: two batches of tensor {each.name}; create one batch with all ids")
        found[each.name] = each
    return found


def gradient_of(name: str, batches: Sequence[Batch]) -> RowGradient | None:
    """Return the sum of one tensor's gradients over all batches, or None if none has a gradient.

    Raises:
        ConfigError: a batch belongs to another tensor.
    """
    for each in batches:
        if each.name != name:
            raise ConfigError(
                f"gradient of tensor {name}: expected batches of this tensor, got a batch of tensor {each.name}"
            )
    found = [each.gradient for each in batches if each.gradient is not None]
    if len(found) < 2:
        return found[0] if found else None
    distinct = DistinctIds.of(np.concatenate([each.rows for each in found]))
    return RowGradient(distinct.ids, distinct.add_up(np.concatenate([each.values for each in found])))
