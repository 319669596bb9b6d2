# SPDX-License-Identifier: Apache-2.0
"""The judge of histories finds what must not be; whole jobs whose servers are killed end as if nobody had."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.durability import State, faults, main

RIGHT: list[list[State]] = [[(1, 0), (2, 1), (3, 2)], [(1, 1), (3, 2), (3, 3)]]
WRONG: dict[str, tuple[list[list[State]], State, str]] = {
    "a push is lost": (RIGHT, (2, 3), "trainer 0: 2 of 3 pushes are in the final state"),
    "a push counts twice": (RIGHT, (3, 4), "trainer 1: 4 of 3 pushes"),
    "an answer came without its push": (
        [[(1, 0), (1, 1), (3, 2)], RIGHT[1]],
        (3, 3),
        "push 2 was answered with 1 of its pushes",
    ),
    "the state went back": (
        [[(1, 0), (2, 2), (3, 1)], RIGHT[1]],
        (3, 3),
        r"trainer 0: \[2, 2\] before \[3, 1\]",
    ),
    "two histories": ([[(1, 0), (2, 0), (3, 3)], [(0, 1), (0, 2), (3, 3)]], (3, 3), "neither came first"),
    "an answer is missing": ([[(1, 0), (2, 1)], RIGHT[1]], (3, 3), "trainer 0: 2 answers to 3 pushes"),
}


def test_a_history_in_which_every_push_is_there_once_is_right() -> None:
    assert faults(RIGHT, (3, 3), 3) == []


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_history_is_told_from_a_right_one(what: str) -> None:
    seen, final, expected = WRONG[what]
    assert any(re.search(expected, text) for text in faults(seen, final, 3))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("compiled")
def test_whole_jobs_whose_servers_are_killed_lose_nothing(tmp_path: Path) -> None:
    assert main(["--kills=1", "--kills_a_job=1", "--steps=40", "--json", str(tmp_path / "figures.json")]) == 0
