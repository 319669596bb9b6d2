# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime.fluid.remote.role_processes import Processes


@pytest.fixture
def jobs() -> Iterator[list[Processes]]:
    """Jobs whose processes are ended with the test."""
    made: list[Processes] = []
    yield made
    for job in made:
        job.end()
