# SPDX-License-Identifier: Apache-2.0
"""A few faults of each place; the long campaigns are `python -m benchmarks.chaos`."""

from __future__ import annotations

import pytest

from benchmarks.chaos.__main__ import campaign
from benchmarks.chaos.faults import blows, faults

SEED = 7
RUNS = 6


def test_the_same_seed_gives_the_same_blows_and_every_fault() -> None:
    assert list(blows(SEED, 200, "ssh")) == list(blows(SEED, 200, "ssh"))
    assert {blow.fault for blow in blows(SEED, 200, "ssh")} == set(faults(str))
    assert {blow.number for blow in blows(SEED, 200, "ssh")} == {"INT", "TERM", "HUP", "KILL"}
    assert not any(blow.fault.startswith("link") for blow in blows(SEED, 200, "local"))


@pytest.mark.cluster
@pytest.mark.parametrize("where", ["ssh", "local"])
@pytest.mark.timeout(600)
def test_random_faults_at_random_moments_break_no_promise(where: str) -> None:
    outcomes = list(campaign(where, SEED, RUNS))
    assert [outcome for outcome in outcomes if outcome.broken] == []
    assert any(outcome.of for outcome in outcomes)
