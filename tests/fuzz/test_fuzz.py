# SPDX-License-Identifier: Apache-2.0
"""Whatever enters from others: never a traceback, never a hang. `python -m tests.fuzz` goes on for longer."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import HealthCheck, settings

from tests.fuzz import job_attacks
from tests.fuzz.entries import ENTRIES
from tests.fuzz.kept import KEPT


@pytest.fixture(autouse=True)
def no_agent_is_left() -> Iterator[None]:
    """The agent that is asked nonsense ends with the test."""
    yield
    job_attacks.let_go()


@pytest.mark.parametrize("name", ENTRIES)
def test_nothing_that_enters_is_a_traceback_or_a_hang(name: str) -> None:
    entry = ENTRIES[name]
    settings(
        max_examples=entry.in_suite,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(hypothesis.given(entry.examples)(entry.attack))()


@pytest.mark.parametrize(("name", "example"), KEPT, ids=lambda value: value if isinstance(value, str) else "")
def test_what_was_found_once_is_not_found_again(name: str, example: object) -> None:
    ENTRIES[name].attack(example)
