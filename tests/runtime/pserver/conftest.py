# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels once for all tests: servers that are killed while they compile never get done with it."""

from __future__ import annotations

import pytest

from paddle.pserver.sparse.warming import warm_up


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Leave compiled kernels where the processes of all tests find them."""
    warm_up()
