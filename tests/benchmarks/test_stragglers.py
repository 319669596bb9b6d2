# SPDX-License-Identifier: Apache-2.0
"""The benchmark of slow trainers: all ways have as much to do, and trainers end with a time or say why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.stragglers import Pauses, steady, took, turns


@pytest.mark.parametrize("delays", [steady, turns])
def test_all_ways_have_the_same_number_of_batches(delays: Callable[[int, bool], Pauses]) -> None:
    for batches in (36, 450):
        assert [sum(map(len, delays(batches, shared))) for shared in (True, False)] == [batches] * 2


def test_trainers_end_with_a_time_or_say_why_not() -> None:
    assert took({"sync_mode": False}, [[0.0] * 3, [0.0]]) > 0
    with pytest.raises(RuntimeError, match="k_steps: expected 1 or more"):
        took({"k_steps": 0}, [[0.0]] * 2)
