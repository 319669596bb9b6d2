# SPDX-License-Identifier: Apache-2.0
"""A short campaign of random signals; the long one is `python -m tests.cluster.campaign`."""

from __future__ import annotations

import pytest

from tests.cluster.campaign import blows, run

SEED = 7
RUNS = 6

pytestmark = pytest.mark.cluster


def test_the_same_seed_gives_the_same_blows() -> None:
    assert list(blows(SEED, 50)) == list(blows(SEED, 50))
    assert {blow.signal for blow in blows(SEED, 50)} == {"SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"}


@pytest.mark.timeout(300)
def test_random_signals_at_random_moments_leave_nothing() -> None:
    problems = [outcome for outcome in run(RUNS, SEED) if outcome.problem]
    assert problems == []
