# SPDX-License-Identifier: Apache-2.0
"""Whoever must know of a change of parameters before it happens: a copy under way, a list of what changed."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt


class Watch(Protocol):
    """Is told before something changes, by the thread that changes it."""

    def dense(self, name: str | None = None) -> None:
        """The blocks of a dense parameter, and what its rule keeps, are about to change; None: of all of them."""

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        """Rows of a sparse parameter are about to change; `rows` are their positions here, each at most once."""


class _Nobody:
    def dense(self, name: str | None = None) -> None: ...

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None: ...


UNWATCHED: Watch = _Nobody()
"""Nobody wants to know."""
