# SPDX-License-Identifier: Apache-2.0
"""What operators on volumes, resized images, unplaced labels, regions and others compute, by definition or by hand."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError
from paddle.ops.base.lod import LoDArray, offsets_of
from paddle.ops.base.registry import lookup
from tests.runtime.ops.run_op import run_op

_RNG = np.random.default_rng(17)
_IMAGE = np.arange(12.0).reshape(1, 1, 3, 4)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_of_volumes_is_what_its_definition_says(groups: int) -> None:
    x, filters = _RNG.standard_normal((2, 4, 4, 5, 3)), _RNG.standard_normal((2, 4 // groups, 2, 2, 2))
    attrs = {"strides": [1, 2, 1], "paddings": [1, 0, 1], "dilations": [2, 1, 1], "groups": groups}
    (out,) = run_op("conv3d", {"Input": x, "Filter": filters}, attrs)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0), (1, 1)))
    expected = np.zeros_like(out)
    for image, f, i, j, k in np.ndindex(out.shape):
        first = f // (2 // groups) * filters.shape[1]
        window = padded[image, first : first + filters.shape[1], i : i + 3 : 2, 2 * j : 2 * j + 2, k : k + 2]
        expected[image, f, i, j, k] = (window * filters[f]).sum()
    np.testing.assert_allclose(out, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("x", "filters"),
    [
        ((2, 3, 8, 9), (4, 3, 3, 2)),
        ((3, 3, 4, 4), (4, 3, 3, 3)),  # few places
        ((2, 40, 6, 7), (32, 40, 3, 3)),  # many channels: back as a convolution of its own
        ((2, 3, 6, 7), (4, 3, 1, 1)),
    ],
)
def test_convolving_flat_volumes_is_convolving_images(x: tuple[int, ...], filters: tuple[int, ...]) -> None:
    images, weights = _RNG.standard_normal(x), _RNG.standard_normal(filters)
    flat: dict[str, object] = {"strides": (1, 1), "paddings": (1, 0), "groups": 1, "dilations": (1, 1)}
    deep: dict[str, object] = {
        "strides": (1, 1, 1),
        "paddings": (0, 1, 0),
        "groups": 1,
        "dilations": (1, 1, 1),
    }
    expected = lookup("conv2d").kernel(images, weights, **flat)
    out = lookup("conv3d").kernel(images[:, :, None], weights[:, :, None], **deep)
    np.testing.assert_allclose(out[:, :, 0], expected, atol=1e-12)
    dout, needs = _RNG.standard_normal(expected.shape), frozenset({"Input@GRAD", "Filter@GRAD"})
    both = lookup("conv2d_grad").kernel(images, weights, dout, needs=needs, **flat)
    deeper = lookup("conv3d_grad").kernel(
        images[:, :, None], weights[:, :, None], dout[:, :, None], needs=needs, **deep
    )
    for ours, theirs in zip(deeper, both, strict=True):
        np.testing.assert_allclose(ours[:, :, 0], theirs, atol=1e-11)


def test_pooling_of_flat_volumes_is_pooling_of_images() -> None:
    images = _RNG.standard_normal((2, 3, 5, 6))
    for kind, exclusive, ceil in product(("max", "avg"), (True, False), (True, False)):
        both = {"pooling_type": kind, "exclusive": exclusive, "ceil_mode": ceil}
        flat = {"ksize": [3, 2], "strides": [2, 2], "paddings": [1, 1], **both}
        deep = {"ksize": [1, 3, 2], "strides": [1, 2, 2], "paddings": [0, 1, 1], **both}
        (expected,) = run_op("pool2d", {"X": images}, flat)
        (out,) = run_op("pool3d", {"X": images[:, :, None]}, deep)
        np.testing.assert_allclose(out[:, :, 0], expected, err_msg=f"{kind} {exclusive} {ceil}")


def test_a_transposed_convolution_of_volumes_grows_what_a_convolution_shrinks() -> None:
    filters = np.ones((1, 1, 1, 1, 2))
    (out,) = run_op(
        "conv3d_transpose", {"Input": np.array([[[[[1.0, 2.0]]]]]), "Filter": filters}, {"strides": [1, 1, 2]}
    )
    np.testing.assert_allclose(out, [[[[[1, 1, 2, 2]]]]])


@pytest.mark.parametrize(
    ("kind", "expected"), [("avg", [[2.5, 4.5], [6.5, 8.5]]), ("max", [[5, 7], [9, 11]])]
)
def test_cells_lie_evenly_over_an_image_and_overlap(kind: str, expected: list[list[float]]) -> None:
    attrs = {"pooling_type": kind, "ksize": [2, 2], "adaptive": True}
    np.testing.assert_allclose(run_op("pool2d", {"X": _IMAGE}, attrs)[0][0, 0], expected)
    deep = {**attrs, "ksize": [1, 2, 2]}
    np.testing.assert_allclose(run_op("pool3d", {"X": _IMAGE[:, :, None]}, deep)[0][0, 0, 0], expected)


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_a_border_is_numpys(mode: str) -> None:
    (out,) = run_op("pad2d", {"X": _IMAGE}, {"paddings": [1, 2, 0, 3], "mode": mode})
    np.testing.assert_allclose(out, np.pad(_IMAGE, ((0, 0), (0, 0), (1, 2), (0, 3)), mode=mode))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"out_h": 3, "out_w": 7}, [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        ({"out_h": 3, "out_w": 8, "align_corners": False}, [0, 0.5, 1, 1.5, 2, 2.5, 3, 3]),
        (
            {"out_h": 3, "out_w": 8, "align_corners": False, "align_mode": 0},
            [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3],
        ),
    ],
)
def test_rows_between_pixels(attrs: dict[str, Any], expected: list[float]) -> None:
    np.testing.assert_allclose(run_op("bilinear_interp", {"X": _IMAGE}, attrs)[0][0, 0, 0], expected)


def test_the_size_of_an_image_may_be_a_variable() -> None:
    (out,) = run_op(
        "nearest_interp", {"X": _IMAGE, "OutSize": np.array([6, 2], "int32")}, {"align_corners": False}
    )
    np.testing.assert_allclose(out[0, 0, :, 0], [0, 0, 4, 4, 8, 8])
    np.testing.assert_allclose(out[0, 0, 0], [0, 2])


def _all_alignments(chances: Any, labels: list[int], blank: int) -> float:
    """The chance of labels: the sum over all ways to write them with repetitions and blanks."""
    total = 0.0
    for way in product(range(chances.shape[1]), repeat=len(chances)):
        merged = [each for at, each in enumerate(way) if at == 0 or each != way[at - 1]]
        if [each for each in merged if each != blank] == labels:
            total += np.prod([chances[at, each] for at, each in enumerate(way)])
    return total


def test_the_cost_of_unplaced_labels_is_that_of_all_their_places() -> None:
    logits, labels = _RNG.standard_normal((10, 3)), [[1, 1], [], [2, 1], [1, 2, 1, 2]]
    lengths = [4, 2, 3, 1]
    flat = np.array([each for some in labels for each in some])[:, None]
    found, loss = run_op(
        "warpctc",
        {
            "Logits": LoDArray(logits, offsets_of([lengths])),
            "Label": LoDArray(flat, offsets_of([[len(some) for some in labels]])),
        },
    )
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    ends = np.cumsum(lengths)
    for row, (end, some) in enumerate(zip(ends, labels, strict=True)):
        chance = _all_alignments(chances[end - lengths[row] : end], some, 0)
        assert loss[row, 0] == pytest.approx(-np.log(chance) if chance else np.inf)
    assert not found[9].any(), "four labels do not fit one step: nothing to learn from"


def test_the_best_path_loses_repetitions_and_blanks() -> None:
    path = LoDArray(np.array([1, 1, 0, 1, 2, 0, 0, 3])[:, None], offsets_of([[5, 2, 1]]))
    (out,) = run_op("ctc_align", {"Input": path}, {"blank": 0})
    assert out.data[:, 0].tolist() == [1, 1, 2, 3]
    assert out.lengths() == [[3, 0, 1]]


def test_regions_give_the_greatest_of_each_cell() -> None:
    rois = LoDArray(np.array([[0.0, 0.0, 3.0, 2.0], [2.0, 1.0, 2.0, 1.0]]), offsets_of([[2]]))
    out, places = run_op("roi_pool", {"X": _IMAGE, "ROIs": rois}, {"pooled_height": 1, "pooled_width": 2})
    np.testing.assert_allclose(out[:, 0, 0], [[9, 11], [6, 6]])
    assert places[0, 0, 0].tolist() == [9, 11]


def test_hashes_depend_on_all_ids_of_a_row_and_stay_below_the_size() -> None:
    ids = np.array([[1, 2], [2, 1], [1, 2]])
    (out,) = run_op("hash", {"X": ids}, {"num_hash": 4, "mod_by": 1000})
    assert out.shape == (3, 4, 1)
    assert (out[0] == out[2]).all()
    assert (out[0] != out[1]).all()
    (many,) = run_op("hash", {"X": np.arange(20_000)[:, None]}, {"mod_by": 10})
    assert np.bincount(many.reshape(-1), minlength=10).min() > 1700


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "expected"),
    [
        ("tanh_shrink", {"X": [0.0, 2.0]}, {}, [0.0, 2 - np.tanh(2)]),
        ("softshrink", {"X": [-2.0, 0.3, 0.7]}, {}, [-1.5, 0.0, 0.2]),
        ("hard_shrink", {"X": [-2.0, 0.3]}, {}, [-2.0, 0.0]),
        ("thresholded_relu", {"X": [0.9, 1.5]}, {}, [0.0, 1.5]),
        ("selu", {"X": [1.0, -1e9]}, {}, [1.0507009873554805, -1.7580993408473766]),
        ("reduce_all", {"X": [[True, False], [True, True]]}, {"dim": [1]}, [False, True]),
        ("reduce_any", {"X": [[True, False], [False, False]]}, {"reduce_all": True}, [True]),
        ("where", {"Condition": [[False, True], [True, False]]}, {}, [[0, 1], [1, 0]]),
        ("diag", {"Diagonal": [1.0, 2.0]}, {}, [[1, 0], [0, 2]]),
        ("kldiv_loss", {"X": [[0.0, 1.0]], "Target": [[0.0, 1.0]]}, {"reduction": "sum"}, [-1.0]),
        (
            "space_to_depth",
            {"X": [[[[1.0, 2.0], [3.0, 4.0]]]]},
            {"blocksize": 2},
            [[[[1]], [[2]], [[3]], [[4]]]],
        ),
        (
            "pixel_shuffle",
            {"X": [[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]]},
            {"upscale_factor": 2},
            [[[[1, 2], [3, 4]]]],
        ),
        ("shuffle_channel", {"X": [[1.0, 2, 3, 4]]}, {"group": 2}, [[1, 3, 2, 4]]),
        ("fill", {}, {"shape": [2, 1], "value": [3.0, 4.0]}, [[3], [4]]),
        ("cross_entropy2", {"X": [[0.25, 0.75]], "Label": [[0]]}, {}, [[np.log(4)]]),
    ],
)
def test_worked_by_hand(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], expected: Any) -> None:
    shaped = {slot: np.array(value) for slot, value in inputs.items()}
    if op_type == "shuffle_channel":
        shaped = {"X": shaped["X"][..., None, None]}
        expected = np.array(expected)[..., None, None]
    np.testing.assert_allclose(run_op(op_type, shaped, attrs)[0], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "text"),
    [
        (
            "conv3d",
            {"Input": np.zeros((1, 3, 2, 2, 2)), "Filter": np.zeros((1, 2, 1, 1, 1))},
            {},
            "does not fit",
        ),
        ("pool3d", {"X": np.zeros((1, 1, 2, 2, 2))}, {"pooling_type": "avg", "ksize": [3, 1, 1]}, "no room"),
        ("pad2d", {"X": _IMAGE}, {"paddings": [1, 0, 0], "mode": "edge"}, "top, bottom, left, right"),
        ("bilinear_interp", {"X": _IMAGE}, {}, "must be positive"),
        ("space_to_depth", {"X": _IMAGE}, {"blocksize": 2}, "must divide 3"),
        ("reduce_all", {"X": _IMAGE}, {}, "compare first"),
        ("unstack", {"X": _IMAGE}, {"axis": 2, "num": 2}, "expected 3"),
        (
            "warpctc",
            {
                "Logits": LoDArray(np.zeros((2, 3)), offsets_of([[2]])),
                "Label": LoDArray(np.array([[3]]), offsets_of([[1]])),
            },
            {},
            r"labels must be in \[0, 3\)",
        ),
    ],
)
def test_what_does_not_fit_an_operator_is_refused(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], text: str
) -> None:
    with pytest.raises((OpError, ExecutionError), match=text):
        run_op(op_type, inputs, attrs)
