# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled before the first test."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def kernels(compiled: None) -> None:
    """See `compiled`."""
