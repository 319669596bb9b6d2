# SPDX-License-Identifier: Apache-2.0
"""Whoever must know of a change of parameters before it happens: a copy under way, a list of what changed."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class Elements(NamedTuple):
    """Elements `start` to `stop` of the blocks of a dense parameter here, with what its rule keeps of them.

    Attributes:
        version: batches that had been applied when they became what they are.
    """

    parameter: str
    start: int
    stop: int
    version: int


class Watch(Protocol):
    """Is notified before a change, by the thread that makes it."""

    def dense(self, elements: Elements) -> None:
        """Elements are about to be overwritten, in the memory in which they lie since `elements.version`."""

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        """Rows of a sparse parameter are about to change; `rows` are their positions here, each at most once."""


class _Nobody:
    def dense(self, elements: Elements) -> None: ...

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None: ...


UNWATCHED: Watch = _Nobody()
"""Nobody wants to know."""
