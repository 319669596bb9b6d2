# SPDX-License-Identifier: Apache-2.0
"""The curve of a job's costs: it keeps its form however long the job runs, and what is read of it is checked."""

from __future__ import annotations

import itertools
import json

import pytest

from paddle_cluster.control import store
from paddle_cluster.control.curves import MOST, OTHER_POINTS, PASSES, POINTS, CostHistory, JobCurves
from paddle_cluster.text.output_events import Plotted, Progressed
from paddle_node.contract.facts import Progress


def after(*steps: Progress) -> dict[str, object]:
    history = CostHistory()
    for step in steps:
        history.add(step)
    return history.as_json()


def test_points_have_the_trainers_own_count_of_batches_and_passes_the_means_that_it_reports() -> None:
    steps = [
        Progress(0, 0, 4.0, step=1, passes=((0, 4.0),)),
        Progress(3, 5, 2.0, step=69, passes=((0, 3.5), (4, 2.75), (5, 2.5))),
        Progress(12, 9, 1.0, step=130, passes=((5, 2.25), (9, 1.5))),
        Progress(12, 9, None, step=131),
    ]
    assert after(*steps) == {
        "process": "trainer-0",
        "points": [[1, 4.0], [69, 2.0], [130, 1.0]],
        "speeds": [],
        "passes": [[0, 3.5], [4, 2.75], [5, 2.25], [9, 1.5]],
    }


def test_the_speed_of_all_trainers_is_kept_with_the_job() -> None:
    history = CostHistory()
    for at, speeds in ((100.0, []), (101.0, [10.0, 20.5]), (102.0, [11.0])):
        history.measure(at, speeds)
    assert history.as_json()["speeds"] == [[101.0, 30.5], [102.0, 11.0]]


def test_a_trainer_that_starts_again_goes_on_to_the_right() -> None:
    steps = [Progress(batch, 3, 1.0, step=step) for batch, step in ((9, 1040), (4, 1035), (6, 1037))]
    assert after(*steps)["points"] == [[1040, 1.0], [1041, 1.0], [1043, 1.0]]


def test_a_trainer_without_a_count_of_its_own_has_batches_of_its_passes() -> None:
    steps = [Progress(batch, pass_id, 1.0) for pass_id, batch in ((0, 0), (0, 3), (1, 0), (1, 2))]
    assert after(*steps)["points"] == [[1, 1.0], [4, 1.0], [5, 1.0], [7, 1.0]]


def test_a_long_job_keeps_a_bounded_curve_of_the_same_form() -> None:
    passes = 50 * PASSES
    curve = after(
        *(
            Progress(batch, pass_id, float(pass_id), passes=((pass_id, float(pass_id)),))
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


def test_a_script_without_passes_has_its_own_steps_and_goes_back_to_its_checkpoint() -> None:
    steps = [Progress(at, None, cost) for at, cost in ((10, 4.0), (20, 3.0), (30, 2.0), (20, 2.5))]
    assert after(*steps) == {
        "process": "trainer-0",
        "points": [[10, 4.0], [20, 2.5]],
        "speeds": [],
        "passes": [],
    }


def test_other_ranks_and_other_numbers_have_curves_of_their_own() -> None:
    curves = JobCurves()
    for rank in (0, 1, 8):
        for step in (1, 2):
            curves.take(Progressed(0, f"trainer-{rank}", Progress(step, None, float(rank))))
            curves.take(Plotted(0, f"trainer-{rank}", "f1", step, 0.5))
    assert curves.costs.as_json()["points"] == [[1, 0.0], [2, 0.0]]
    assert curves.as_json() == [
        {"process": "trainer-0", "title": "f1", "points": [[1, 0.5], [2, 0.5]]},
        {"process": "trainer-1", "title": "cost", "points": [[1, 1.0], [2, 1.0]]},
        {"process": "trainer-1", "title": "f1", "points": [[1, 0.5], [2, 0.5]]},
    ]


def test_many_curves_of_a_long_job_are_bounded_and_are_read_again() -> None:
    curves = JobCurves()
    for step in range(10 * OTHER_POINTS):
        for title in range(2 * MOST):
            curves.take(Plotted(0, "trainer-0", f"curve {title}", step, 1.0))
    found = curves.as_json()
    assert len(found) == MOST
    assert all(OTHER_POINTS // 2 <= len(one["points"]) <= OTHER_POINTS for one in found)
    assert store.read_status({"version": 1, "curves": json.loads(json.dumps(found))})["curves"] == found


def test_what_are_no_curves_is_left_out() -> None:
    curves = [7, {"process": 1, "title": "f1", "points": [[1, "x"], [1, 2]]}]
    assert store.read_status({"version": 1, "curves": curves})["curves"] == [
        {"process": "", "title": "f1", "points": [[1, 2]]}
    ]
