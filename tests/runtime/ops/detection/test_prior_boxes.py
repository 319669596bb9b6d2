# SPDX-License-Identifier: Apache-2.0
"""Prior boxes, their codes and overlaps equal plain loops."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError
from tests.runtime.ops.detection.plain_boxes import boxes, sequences, share
from tests.runtime.ops.run_op import run_op

_FEATURES, _IMAGE = np.zeros((2, 3, 2, 3), "f"), np.zeros((2, 3, 20, 33), "f")


def _sides(attrs: dict[str, Any]) -> list[tuple[float, float]]:
    ratios = [1.0]
    for ratio in attrs["aspect_ratios"]:
        if ratio not in ratios:
            ratios += [ratio, 1 / ratio] if attrs["flip"] else [ratio]
    found = []
    for number, least in enumerate(attrs["min_sizes"]):
        each = [(least * sqrt(ratio), least / sqrt(ratio)) for ratio in ratios]
        if attrs["max_sizes"]:
            side = sqrt(least * attrs["max_sizes"][number])
            each.insert(1 if attrs["min_max_aspect_ratios_order"] else len(each), (side, side))
        found += each
    return found


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("steps", [(0.0, 0.0), (7.0, 5.0)])
def test_prior_boxes_lie_around_each_place(first: bool, steps: tuple[float, float]) -> None:
    attrs = {
        "min_sizes": [4.0, 7.0],
        "max_sizes": [9.0, 12.0],
        "aspect_ratios": [1.0, 2.0, 3.0],
        "flip": True,
        "clip": True,
        "step_w": steps[0],
        "step_h": steps[1],
        "min_max_aspect_ratios_order": first,
    }
    found, variances = run_op("prior_box", {"Input": _FEATURES, "Image": _IMAGE}, attrs)
    sides = _sides(attrs)
    assert found.shape == variances.shape == (2, 3, len(sides), 4)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(variances[1, 2, 3], np.array([0.1, 0.1, 0.2, 0.2], "f"))
    across, down = steps if steps[0] else (11.0, 10.0)
    for row, column, number in np.ndindex(found.shape[:3]):
        x, y, (width, height) = (column + 0.5) * across, (row + 0.5) * down, sides[number]
        box = [(x - width / 2) / 33, (y - height / 2) / 20, (x + width / 2) / 33, (y + height / 2) / 20]
        np.testing.assert_allclose(found[row, column, number], np.clip(box, 0, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("flat", [False, True])
def test_dense_boxes_lie_evenly_in_a_step(flat: bool) -> None:
    attrs = {
        "fixed_sizes": [6.0, 9.0],
        "fixed_ratios": [1.0, 2.0],
        "densities": [2, 1],
        "flatten_to_2d": flat,
    }
    found, _ = run_op("density_prior_box", {"Input": _FEATURES, "Image": _IMAGE}, attrs)
    expected = []
    step = int((11.0 + 10.0) / 2)
    for row in range(2):
        for column in range(3):
            for size, density in ((6.0, 2), (9.0, 1)):
                for ratio in (1.0, 2.0):
                    for down in range(density):
                        for across in range(density):
                            x = (column + 0.5) * 11 - step / 2 + (step // density) * (across + 0.5)
                            y = (row + 0.5) * 10 - step / 2 + (step // density) * (down + 0.5)
                            width, height = size * sqrt(ratio) / 2, size / sqrt(ratio) / 2
                            expected.append(
                                [(x - width) / 33, (y - height) / 20, (x + width) / 33, (y + height) / 20]
                            )
    assert found.shape == ((60, 4) if flat else (2, 3, 10, 4))
    np.testing.assert_allclose(found.reshape(-1, 4), np.clip(expected, 0, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip", [False, True])
def test_dense_boxes_outside_of_the_image_end_there_and_are_cut_altogether_by_clip(clip: bool) -> None:
    attrs = {"fixed_sizes": [6.0], "fixed_ratios": [1.0], "densities": [1], "offset": 3.0, "clip": clip}
    found, _ = run_op("density_prior_box", {"Input": _FEATURES, "Image": _IMAGE}, attrs)
    for row, column in np.ndindex(2, 3):
        left, top = ((column + 3) * 11 - 3) / 33, ((row + 3) * 10 - 3) / 20
        expected = [left, top, 1, 1]
        np.testing.assert_allclose(
            found[row, column, 0], np.clip(expected, 0, 1) if clip else expected, rtol=1e-6
        )


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"min_sizes": []}, r"min_sizes=\(\)"),
        ({"min_sizes": [4.0], "max_sizes": [3.0]}, r"max_sizes=\(3.0,\)"),
        ({"min_sizes": [4.0], "variances": [0.1]}, "expected 4 numbers"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(attrs: dict[str, Any], text: str) -> None:
    with pytest.raises((OpError, ExecutionError), match=text):
        run_op("prior_box", {"Input": _FEATURES, "Image": _IMAGE}, attrs)


def test_overlaps_are_intersections_over_unions() -> None:
    rng = np.random.default_rng(1)
    x, y = boxes(rng, 4), boxes(rng, 3)
    (found,) = run_op("iou_similarity", {"X": sequences(x, 1, 3), "Y": y})
    expected = [[share(a, b) for b in y] for a in x]
    np.testing.assert_allclose(found.data, expected, rtol=1e-5, atol=1e-7)
    assert found.lengths() == [[1, 3]]
    (none,) = run_op("iou_similarity", {"X": np.zeros((1, 4), "f"), "Y": y[:0]})
    assert none.shape == (1, 0)
    assert run_op("iou_similarity", {"X": np.zeros((1, 4), "f"), "Y": np.zeros((1, 4), "f")})[0].tolist() == [
        [0]
    ]


def _encode(box: Any, prior: Any, variance: Any, more: float) -> list[float]:
    width, height = prior[2] - prior[0] + more, prior[3] - prior[1] + more
    x, y = prior[0] + width / 2, prior[1] + height / 2
    found = [((box[0] + box[2]) / 2 - x) / width, ((box[1] + box[3]) / 2 - y) / height]
    found += [np.log((box[2] - box[0] + more) / width), np.log((box[3] - box[1] + more) / height)]
    return [float(value / each) for value, each in zip(found, variance, strict=True)]


def _decode(code: Any, prior: Any, variance: Any, more: float) -> list[float]:
    width, height = prior[2] - prior[0] + more, prior[3] - prior[1] + more
    x = variance[0] * code[0] * width + prior[0] + width / 2
    y = variance[1] * code[1] * height + prior[1] + height / 2
    width, height = width * np.exp(variance[2] * code[2]), height * np.exp(variance[3] * code[3])
    return [x - width / 2, y - height / 2, x + width / 2 - more, y + height / 2 - more]


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("variances", ["tensor", "attribute", "none"])
@pytest.mark.parametrize("axis", [0, 1])
def test_boxes_are_coded_and_decoded(normalized: bool, variances: str, axis: int) -> None:
    rng = np.random.default_rng(2)
    priors, targets, more = boxes(rng, 3, 20), boxes(rng, 2, 20), 0.0 if normalized else 1.0
    spread = {
        "tensor": rng.uniform(0.1, 1, (3, 4)),
        "attribute": [[0.1, 0.2, 0.3, 0.4]] * 3,
        "none": np.ones((3, 4)),
    }
    each = np.array(spread[variances], "f")
    attrs: dict[str, Any] = {"box_normalized": normalized, "variance": [0.1, 0.2, 0.3, 0.4]}
    attrs = attrs if variances == "attribute" else {"box_normalized": normalized}
    inputs: dict[str, Any] = {"PriorBox": priors}
    inputs |= {"PriorBoxVar": each} if variances == "tensor" else {}
    (codes,) = run_op("box_coder", {**inputs, "TargetBox": sequences(targets, 2, 0)}, attrs)
    expected = [[_encode(box, *pair, more) for pair in zip(priors, each, strict=True)] for box in targets]
    np.testing.assert_allclose(codes.data, expected, rtol=1e-4, atol=1e-4)
    assert codes.lengths() == [[2, 0]]
    given = codes.data.swapaxes(0, 1) if axis else codes.data
    attrs |= {"code_type": "decode_center_size", "axis": axis}
    (found,) = run_op("box_coder", {**inputs, "TargetBox": np.ascontiguousarray(given)}, attrs)
    for place in np.ndindex(found.shape[:2]):
        prior = place[0] if axis else place[1]
        box = _decode(given[place], priors[prior], each[prior], more)
        np.testing.assert_allclose(found[place], box, rtol=1e-4, atol=1e-4)


def test_no_boxes_have_no_codes() -> None:
    (codes,) = run_op(
        "box_coder", {"PriorBox": np.ones((3, 4), "f"), "TargetBox": sequences(np.zeros((0, 4), "f"), 0)}
    )
    assert codes.shape == (0, 3, 4)
