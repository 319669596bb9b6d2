# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled before the first test."""

from __future__ import annotations

import pytest

from paddle.pserver.wire import arithmetic


@pytest.fixture(scope="session", autouse=True)
def kernels(compiled: None) -> None:
    """See `compiled`; in this process the loops for dense blocks are used from the first block on."""
    arithmetic.prepare(1 << 30)
