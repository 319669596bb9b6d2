# SPDX-License-Identifier: Apache-2.0
"""The rows that one batch needs of sparse tensors: each of them one time, for the pull and the push alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.optim.spec import RowGradient
from paddle.pserver.client.interop import HostArray, float_rows, host_array, read_ids
from paddle.pserver.sparse.distinct import DistinctIds

Ids = npt.NDArray[np.int64]


class Batch:
    """The rows of one sparse tensor that a batch needs. `rows[inverse]` are the rows of the ids that were given.

    Attributes:
        name: of the tensor.
        ids: (n,) int64, strictly ascending: each id one time.
        inverse: int64, of the shape of the ids that were given: the position of each in `ids`.
    """

    def __init__(self, name: str, ids: Any, width: int, bring: Callable[[], None]) -> None:
        """Find equal ids.

        Args:
            ids: (...) int64 or int32.
            width: elements of a row.
            bring: has `take` called, at the first use of rows that did not come before.

        Raises:
            ConfigError: the ids are no array of int64 or int32.
        """
        given = read_ids(ids, f"row ids of tensor {name}")
        self._distinct = DistinctIds.of(np.ascontiguousarray(given.reshape(-1)))
        self.name, self.ids = name, self._distinct.ids
        self.inverse: Ids = self._distinct.inverse.reshape(given.shape)
        self._width, self._bring = width, bring
        self._rows: HostArray | None = None
        self._grad: HostArray | None = None

    @property
    def has_rows(self) -> bool:
        """Whether `rows` is here, so that nothing has to be asked for."""
        return self._rows is not None

    @property
    def rows(self) -> HostArray:
        """The rows (n, width) float32 of `ids`, as they were when they came; the caller's to change."""
        if self._rows is None:
            self._bring()
        assert self._rows is not None
        return self._rows

    @property
    def grad(self) -> HostArray | None:
        """The gradient (n, width) float32 of `rows`; None: it is 0. Any array that a push takes may be assigned."""
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
                f"{what}: expected {(len(self.ids), self._width)} float32, as its rows, "
                f"got {array.shape} {array.dtype}; `total` adds up the gradients of repeated ids"
            )
        self._grad = np.ascontiguousarray(array)

    def total(self, values: Any) -> HostArray:
        """Return the sums (n, width) of gradients (..., width) float32 of the ids that were given.

        Gradients of one id are added in the order of the ids. Raises ConfigError: a shape or dtype is wrong.
        """
        found = float_rows(values, self.inverse.shape, f"gradient of the batch of tensor {self.name}")
        return self._distinct.add_up(found)

    def take(self, rows: HostArray) -> None:
        """Take rows (n, width) that came from the servers."""
        self._rows = rows


def batches_of(given: Batch | Mapping[str, Batch] | Sequence[Batch] | None) -> dict[str, Batch]:
    """Return batches by their tensors. Raises ConfigError: one is no batch, or two are of one tensor."""
    if given is None:
        return {}
    every = (
        [given] if isinstance(given, Batch) else list(given.values() if isinstance(given, Mapping) else given)
    )
    found: dict[str, Batch] = {}
    for each in every:
        if not isinstance(each, Batch):
            raise ConfigError(f"ahead: expected what Client.batch returns, got {type(each).__name__}")
        if each.name in found:
            raise ConfigError(f"ahead: two batches of tensor {each.name}: make one batch of all ids")
        found[each.name] = each
    return found


def gradient_of(name: str, batches: Sequence[Batch]) -> RowGradient | None:
    """Return the gradient of batches of one tensor, added up where they share ids; None: none has a gradient.

    Raises:
        ConfigError: one belongs to another tensor.
    """
    for each in batches:
        if each.name != name:
            raise ConfigError(f"gradient of tensor {name}: got a batch of tensor {each.name}")
    found = [RowGradient(each.ids, each.grad) for each in batches if each.grad is not None]
    if len(found) < 2:
        return found[0] if found else None
    distinct = DistinctIds.of(np.concatenate([each.rows for each in found]))
    return RowGradient(distinct.ids, distinct.add_up(np.concatenate([each.values for each in found])))
