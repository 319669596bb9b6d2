# SPDX-License-Identifier: Apache-2.0
"""Tests with real servers that run beside each other: each starts its own, in a folder of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.beside import Place

AT_ONCE = 6  # they wait for peers and for servers that start more than they compute
BESIDE_S = 300  # the first test waits for all of them, each of which has deadlines of its own


@contextlib.contextmanager
def own_servers() -> Iterator[Place]:
    """Yields what makes a place: an empty folder."""

    @contextlib.contextmanager
    def place(folder: Path) -> Iterator[tuple[Path]]:
        yield (folder,)

    yield place
