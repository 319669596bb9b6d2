# SPDX-License-Identifier: Apache-2.0
"""The curve of a job's costs: it keeps its form however long the job runs, and what is read of it is checked."""

from __future__ import annotations

import itertools
import json

import pytest

from paddle_cluster.control import cost_history, status_file
from paddle_cluster.control.cost_history import PASSES, POINTS, CostHistory
from paddle_cluster.nodes.reports import Step


def after(*steps: Step) -> dict[str, object]:
    history = CostHistory()
    for step in steps:
        history.add(step)
    return history.as_json()


def test_points_say_how_many_batches_were_made_and_passes_their_mean() -> None:
    steps = [Step(0, 0, 4.0, None), Step(0, 3, 2.0, None), Step(1, 1, 1.0, None), Step(1, 2, None, None)]
    assert after(*steps) == {
        "process": "trainer-0",
        "points": [[1, 4.0], [4, 2.0], [6, 1.0]],
        "passes": [[0, 3.0], [1, 1.0]],
    }


def test_a_trainer_that_starts_again_goes_on_to_the_right() -> None:
    points = after(Step(3, 9, 1.0, None), Step(3, 4, 1.0, None), Step(2, 0, 1.0, None))["points"]
    assert points == [[10, 1.0], [11, 1.0], [12, 1.0]]


def test_a_long_job_keeps_a_bounded_curve_of_the_same_form() -> None:
    passes = 50 * PASSES
    curve = after(
        *(
            Step(pass_id, batch, float(pass_id), None)
            for pass_id, batch in itertools.product(range(passes), (0, 1))
        )
    )
    points = curve["points"]
    assert isinstance(points, list)
    assert POINTS // 2 <= len(points) <= POINTS
    assert all(abs(cost - batches / 2) < passes / POINTS * 4 for batches, cost in points)
    assert curve["passes"] == [[pass_id, float(pass_id)] for pass_id in range(passes - PASSES, passes)]


def test_what_was_written_is_read_again() -> None:
    curve = after(*(Step(0, batch, 1 / (batch + 1), None) for batch in range(1000)))
    assert status_file.read({"version": 1, "curve": json.loads(json.dumps(curve))})["curve"] == curve


@pytest.mark.parametrize("value", [None, 7, "x", [], {"points": "ab", "passes": 3, "process": []}])
def test_what_is_no_curve_has_no_points(value: object) -> None:
    assert cost_history.read(value).get("points", []) == []


def test_points_that_are_none_are_left_out() -> None:
    points = [[1, 2.0], [1], "ab", [1, None], [True, 1.0], [1, float("inf")], {}, [3, 4]]
    assert cost_history.read({"points": points})["points"] == [[1, 2.0], [3, 4]]
