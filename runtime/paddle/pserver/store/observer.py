# SPDX-License-Identifier: Apache-2.0
"""The interface of observers that are notified before parameters change, such as a copy in progress."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from paddle_node.contract.classes import NamedTuple


class Elements(NamedTuple):
    """Elements `start` to `stop` of a dense parameter's blocks on this server, with the state of its rule.

    Attributes:
        version: number of applied batches when the elements got their current values.
    """

    parameter: str
    start: int
    stop: int
    version: int


class Watch(Protocol):
    """The interface of an observer, which the changing thread notifies before each change."""

    def dense(self, elements: Elements) -> None:
        """Prepare for elements to be overwritten, in the memory that has contained them since `elements.version`."""

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        """Prepare for a change to rows of a sparse parameter; `rows` are their distinct positions on this server."""


class _NoObserver:
    def dense(self, elements: Elements) -> None: ...

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None: ...


UNWATCHED: Watch = _NoObserver()
"""An observer that ignores all changes."""
