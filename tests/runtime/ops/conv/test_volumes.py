# SPDX-License-Identifier: Apache-2.0
"""What operators on volumes, resized images and regions compute, by definition or by hand."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

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


def test_regions_give_the_greatest_of_each_cell() -> None:
    rois = LoDArray(np.array([[0.0, 0.0, 3.0, 2.0], [2.0, 1.0, 2.0, 1.0]]), offsets_of([[2]]))
    out, places = run_op("roi_pool", {"X": _IMAGE, "ROIs": rois}, {"pooled_height": 1, "pooled_width": 2})
    np.testing.assert_allclose(out[:, 0, 0], [[9, 11], [6, 6]])
    assert places[0, 0, 0].tolist() == [9, 11]
