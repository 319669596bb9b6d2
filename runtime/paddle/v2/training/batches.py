# SPDX-License-Identifier: Apache-2.0
"""The batches of one pass, and a look at the next one before the present one is over.

Whoever iterates meets what the reader gives and raises in its order: an error of the reader, or of a sample that fits
no layer, is raised where it would be if nobody had looked ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from paddle.v2.training.feeder import Feed


@dataclass(slots=True)
class _Read:
    """What a reader gave: a batch, and what the network is fed with once that is known; or why there is no batch."""

    batch: Any = None
    feed: Feed | None = None
    error: Exception | None = None


class Batches:
    """Iterates over batches; `feed` is that of the newest one, `count` says how many have come."""

    def __init__(self, batches: Iterable[Any], feeder: Callable[[Any], Feed]) -> None:
        self._batches, self._feeder = iter(batches), feeder
        self._now = _Read()
        self._ahead: _Read | None = None
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            Exception: what the reader raises.
        """
        self._now, self._ahead = self._ahead or self._read(), None
        if self._now.error is not None:
            raise self._now.error
        self.count += 1
        return self._now.batch

    def feed(self) -> Feed:
        """Return what the network is fed with.

        Raises:
            UsageError, UsageTypeError: a sample does not fit.
        """
        if self._now.feed is None:
            self._now.feed = self._feeder(self._now.batch)
        return self._now.feed

    def look_ahead(self) -> Feed | None:
        """Read the next batch; return what `feed` will be then, or None where there is none or it will raise."""
        self._ahead = self._read()
        if self._ahead.error is None:
            try:
                self._ahead.feed = self._feeder(self._ahead.batch)
            except Exception:  # noqa: BLE001  samples are the user's: `feed` raises it again at its time
                return None
        return self._ahead.feed

    def _read(self) -> _Read:
        try:
            return _Read(next(self._batches))
        except Exception as error:  # noqa: BLE001  whatever the reader raises: it is raised at its time
            return _Read(error=error)
