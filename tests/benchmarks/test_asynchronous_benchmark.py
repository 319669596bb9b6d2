# SPDX-License-Identifier: Apache-2.0
"""The benchmark of slow trainers over parameter servers runs whole jobs, and says why where one fails."""

from __future__ import annotations

import pytest

from benchmarks.asynchronous import run


@pytest.mark.slow
def test_a_slow_trainer_ends_with_the_others_and_every_trainer_tells_what_it_did() -> None:
    told, discarded = run("small", 3, 1, 4)
    assert [each["trainer"] for each in told] == [0, 1, 2]
    assert [each["steps"] for each in told[:2]] == [3, 3]
    assert all(each["distance"] < 1.0 for each in told)
    assert "discarded" in discarded


def test_a_job_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'no model'"):
        run("no model", 3, 1, 1)
