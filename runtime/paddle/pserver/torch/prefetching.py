# SPDX-License-Identifier: Apache-2.0
"""Rows that come with the answer to a step, before they are looked up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paddle.pserver.client.batch import Batch
from paddle.pserver.client.client import Client
from paddle.pserver.torch.ids import Ids


class Prefetched:
    """The result of `ServerOptimizer.prefetch`.

    Attributes:
        batches: by table.
        step: the step whose answer brings their rows.
    """

    def __init__(self, batches: Mapping[str, Batch], ids: Mapping[str, Ids], step: int) -> None:
        self.batches, self.step = dict(batches), step
        self._ids, self._used = dict(ids), set[str]()

    @property
    def is_here(self) -> bool:
        """Whether all rows have arrived."""
        return all(batch.has_rows for batch in self.batches.values())

    def take(self, name: str, ids: Ids) -> Batch | None:
        """Return the batch of exactly these ids (m,), once: its rows have one owner."""
        if name in self._used or name not in self.batches or not np.array_equal(self._ids[name], ids):
            return None
        self._used.add(name)
        return self.batches[name]


class Coming:
    """The prefetched batches of an optimizer, used in the step after the one that brought them."""

    def __init__(self) -> None:
        self._handles: list[Prefetched] = []
        self._merged: dict[str, Batch] = {}

    def add(self, handle: Prefetched) -> None:
        """Expect a batch."""
        self._handles.append(handle)

    def of_step(self, step: int, client: Client) -> dict[str, Batch]:
        """Return what to ask for with a step: by table, one batch of all ids that its answer should bring."""
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
        """Share the rows among the batches of the step, and forget those of earlier ones."""
        self._handles = [each for each in self._handles if each.step >= step]
        for handle in self._handles:
            if handle.step == step:
                for name, batch in handle.batches.items():
                    if not batch.has_rows:
                        _share(self._merged[name], batch)

    def found(self, name: str, ids: Ids, step: int) -> Batch | None:
        """Return a batch of exactly these ids (m,), whose rows the given step brought."""
        for handle in self._handles:
            if handle.step == step and (batch := handle.take(name, ids)) is not None:
                return batch
        return None

    def fill(self, name: str, batch: Batch) -> None:
        """Give a batch its rows if all of them have come, with other ids."""
        if (merged := self._merged.get(name)) is not None and merged.has_rows:
            _share(merged, batch)


def _share(source: Batch, batch: Batch) -> None:
    """Copy the rows of a batch's ids, if the source has all of them."""
    place = np.searchsorted(source.ids, batch.ids)
    if not len(place) or (place[-1] < len(source.ids) and np.array_equal(source.ids[place], batch.ids)):
        batch.take(source.rows[place])
