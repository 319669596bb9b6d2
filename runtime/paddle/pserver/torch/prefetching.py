# SPDX-License-Identifier: Apache-2.0
"""Prefetching: rows that arrive with the answer to a step, before they are looked up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

import numpy as np

from paddle.pserver.client.batch import Batch
from paddle.pserver.client.client import Client
from paddle.pserver.torch.ids import Ids


class Prefetched:
    """A request for rows that arrive with the answer to a later step; `ServerOptimizer.prefetch` returns it.

    Attributes:
        batches: batches by table.
        step: the step whose answer contains their rows.
    """

    def __init__(self, batches: Mapping[str, Batch], ids: Mapping[str, Ids], step: int) -> None:
        self.batches, self.step = dict(batches), step
        self._ids, self._used = dict(ids), set[str]()

    @property
    def is_here(self) -> bool:
        """Return whether all prefetched rows have arrived."""
        return all(batch.has_rows for batch in self.batches.values())

    def take(self, name: str, ids: Ids) -> Batch | None:
        """Return the batch with exactly these ids (m,), only once, because its rows have one owner."""
        if name in self._used or name not in self.batches or not np.array_equal(self._ids[name], ids):
            return None
        self._used.add(name)
        return self.batches[name]


class Coming:
    """The prefetched batches of an optimizer; each is used in the step after the one that fetched it."""

    def __init__(self) -> None:
        self._handles: list[Prefetched] = []
        self._merged: dict[str, Batch] = {}

    def add(self, handle: Prefetched) -> None:
        """Add a batch whose rows are requested together with a later step."""
        self._handles.append(handle)

    def of_step(self, step: int, client: Client) -> dict[str, Batch]:
        """Return the batches to request with a step: for each table, one batch with all prefetched ids."""
        asked: dict[str, list[Batch]] = {}
        for handle in self._handles:
            if handle.step == step:
                for name, batch in handle.batches.items():
                    asked.setdefault(name, []).append(batch)
        several = {
            name: np.concatenate([each.ids for each in batches])
            for name, batches in asked.items()
            if len(batches) > 1
        }
        self._merged = {name: batches[0] for name, batches in asked.items()}
        self._merged |= client.batch(several) if several else {}
        return self._merged

    def arrive(self, step: int) -> None:
        """Distribute the received rows to the batches of the step, and discard rows of earlier steps."""
        self._handles = [each for each in self._handles if each.step >= step]
        for handle in self._handles:
            if handle.step == step:
                for name, batch in handle.batches.items():
                    if not batch.has_rows:
                        _share(self._merged[name], batch)

    def found(self, name: str, ids: Ids, step: int) -> Batch | None:
        """Return a batch with exactly these ids (m,) whose rows arrived with the given step."""
        for handle in self._handles:
            if handle.step == step and (batch := handle.take(name, ids)) is not None:
                return batch
        return None

    def fill(self, name: str, batch: Batch) -> None:
        """Set the rows of a batch if all its rows have arrived, even if other batches requested them."""
        if (merged := self._merged.get(name)) is not None and merged.has_rows:
            _share(merged, batch)


class Prefetches(Protocol):
    """The interface of `ServerOptimizer` that `Prefetching` uses."""

    def prefetch(self, ids: Any, steps: int = 1) -> Prefetched:
        """Request rows together with a later step."""


class Prefetching:
    """An iterator over a DataLoader that prefetches the rows of the next batches while a batch is being computed."""

    def __init__(
        self,
        loader: Iterable[Any],
        optimizer: Prefetches,
        ids: Callable[[Any], Any],
        *,
        depth: int = 1,
        batches_per_step: int = 1,
    ) -> None:
        """Wrap a loader.

        Args:
            ids: function from a batch to the argument of `ServerOptimizer.prefetch`.
            depth: how many steps ahead batches are read from the loader. Rows still arrive with the last step before
                their use, so they are never outdated.
            batches_per_step: number of batches whose gradients are accumulated for one step.
        """
        self._loader, self._optimizer, self._ids = loader, optimizer, ids
        self._depth, self._batches_per_step = depth, batches_per_step

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        groups = iter(lambda: list(islice(batches, self._batches_per_step)), [])
        coming: deque[list[Any]] = deque()
        while True:
            for group in islice(groups, self._depth + 1 - len(coming)):
                for batch in group if coming else ():
                    self._optimizer.prefetch(self._ids(batch), steps=len(coming))
                coming.append(group)
            if not coming:
                return
            yield from coming.popleft()


def _share(source: Batch, batch: Batch) -> None:
    """Copy the rows of a batch's ids, if the source has all of them."""
    place = np.searchsorted(source.ids, batch.ids)
    if not len(place) or (place[-1] < len(source.ids) and np.array_equal(source.ids[place], batch.ids)):
        batch.take(source.rows[place])
