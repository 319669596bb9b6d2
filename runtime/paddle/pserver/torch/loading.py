# SPDX-License-Identifier: Apache-2.0
"""A wrapper of a DataLoader that asks for the rows of its next batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from paddle.pserver.torch.optimizer import ServerOptimizer


class Prefetching:
    """Wraps a DataLoader and prefetches the next batches' rows while a batch is computed."""

    def __init__(
        self,
        loader: Iterable[Any],
        optimizer: ServerOptimizer,
        ids: Callable[[Any], Any],
        *,
        depth: int = 1,
        batches_per_step: int = 1,
    ) -> None:
        """Wrap a loader.

        Args:
            ids: function from a batch to the argument of `ServerOptimizer.prefetch`.
            depth: how many steps ahead batches are taken from the loader. Rows come with the last step before
                their use all the same: they are never outdated.
            batches_per_step: batches whose gradients are accumulated for one step.
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
