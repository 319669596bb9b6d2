# SPDX-License-Identifier: Apache-2.0
"""Ranks of the benchmark sum, take their turns and end; what is not installed is told."""

from __future__ import annotations

import sys

import pytest

from benchmarks.collectives.sides import Ranks, installed


def test_ranks_take_turns_and_end() -> None:
    with Ranks("tcp", 2, sys.executable) as side:
        for sizes in ([4096], [400, 80_000]):
            took = side.steps(sizes, 3)
            assert [len(each) for each in took] == [3, 3]
            assert all(seconds > 0 for each in took for seconds in each)


def test_ranks_that_cannot_start_say_why() -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'none'"):
        Ranks("none", 1, sys.executable)
    assert installed(sys.executable, "numpy")
    assert not installed(sys.executable, "no_such_package_here")
