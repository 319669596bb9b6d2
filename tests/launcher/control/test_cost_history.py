# SPDX-License-Identifier: Apache-2.0
"""The curve of a job's costs: it keeps its form however long the job runs, and what is read of it is checked."""

from __future__ import annotations

import itertools
import json

import pytest

from paddle_cluster.control import store
from paddle_cluster.control.curves import PASSES, POINTS, CostHistory
from paddle_node.contract.facts import Progress


def after(*steps: Progress) -> dict[str, object]:
    history = CostHistory()
    for step in steps:
        history.add(step)
    return history.as_json()


def test_points_say_how_many_batches_were_made_and_passes_their_mean() -> None:
    steps = [
        Progress(0, 0, 4.0, None),
        Progress(3, 0, 2.0, None),
        Progress(1, 1, 1.0, None),
        Progress(2, 1, None, None),
    ]
    assert after(*steps) == {
        "process": "trainer-0",
        "points": [[1, 4.0], [4, 2.0], [6, 1.0]],
        "passes": [[0, 3.0], [1, 1.0]],
    }


def test_a_trainer_that_starts_again_goes_on_to_the_right() -> None:
    points = after(Progress(9, 3, 1.0, None), Progress(4, 3, 1.0, None), Progress(0, 2, 1.0, None))["points"]
    assert points == [[10, 1.0], [11, 1.0], [12, 1.0]]


def test_a_long_job_keeps_a_bounded_curve_of_the_same_form() -> None:
    passes = 50 * PASSES
    curve = after(
        *(
            Progress(batch, pass_id, float(pass_id), None)
            for pass_id, batch in itertools.product(range(passes), (0, 1))
        )
    )
    points = curve["points"]
    assert isinstance(points, list)
    assert POINTS // 2 <= len(points) <= POINTS
    assert all(abs(cost - batches / 2) < passes / POINTS * 4 for batches, cost in points)
    assert curve["passes"] == [[pass_id, float(pass_id)] for pass_id in range(passes - PASSES, passes)]


def test_what_was_written_is_read_again() -> None:
    curve = after(*(Progress(batch, 0, 1 / (batch + 1), None) for batch in range(1000)))
    assert store.read_status({"version": 1, "curve": json.loads(json.dumps(curve))})["curve"] == curve


@pytest.mark.parametrize("value", [None, 7, "x", [], {"points": "ab", "passes": 3, "process": []}])
def test_what_is_no_curve_has_no_points(value: object) -> None:
    assert store.read_curve(value).get("points", []) == []


def test_points_that_are_none_are_left_out() -> None:
    points = [[1, 2.0], [1], "ab", [1, None], [True, 1.0], [1, float("inf")], {}, [3, 4]]
    assert store.read_curve({"points": points})["points"] == [[1, 2.0], [3, 4]]
