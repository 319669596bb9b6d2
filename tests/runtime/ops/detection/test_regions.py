# SPDX-License-Identifier: Apache-2.0
"""Grids of cells over regions, and convolutions of shifted places, equal plain loops."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError
from tests.runtime.ops.detection.plain_boxes import sequences
from tests.runtime.ops.run_op import run_op

_RNG = np.random.default_rng(11)
_ROIS = np.array([[0.3, 1.0, 6.2, 7.5], [2.6, 2.0, 9.4, 7.0], [-3.0, -2.0, 3.0, 3.5], [5.0, 4.0, 30.0, 29.0]])
_GRID: dict[str, Any] = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5}


def _between(image: Any, y: Any, x: Any) -> float:
    """The value at a place of an image (H, W), which zeros surround."""
    total = 0.0
    for row in (floor(y), floor(y) + 1):
        for column in (floor(x), floor(x) + 1):
            if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
                total += image[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


@pytest.mark.parametrize("ratio", [-1, 2])
def test_cells_are_means_of_values_between_pixels(ratio: int) -> None:
    x = _RNG.standard_normal((2, 3, 5, 6))
    (out,) = run_op("roi_align", {"X": x, "ROIs": sequences(_ROIS, 3, 1)}, {**_GRID, "sampling_ratio": ratio})
    for n, c, row, column in np.ndindex(out.shape):
        left, top, right, bottom = _ROIS[n] * 0.5
        high, wide = max(bottom - top, 1.0) / 2, max(right - left, 1.0) / 3
        down, across = (ratio, ratio) if ratio > 0 else (ceil(high), ceil(wide))
        total = 0.0
        for i in range(down):
            for j in range(across):
                y = top + row * high + (i + 0.5) * high / down
                z = left + column * wide + (j + 0.5) * wide / across
                if -1 <= y <= 5 and -1 <= z <= 6:
                    total += _between(x[int(n == 3), c], min(max(y, 0), 4), min(max(z, 0), 5))
        assert out[n, c, row, column] == pytest.approx(total / (down * across))


def test_each_cell_has_channels_of_its_own() -> None:
    x = _RNG.standard_normal((2, 12, 5, 6))
    (out,) = run_op("psroi_pool", {"X": x, "ROIs": sequences(_ROIS, 3, 1)}, {**_GRID, "output_channels": 2})
    assert out.shape == (4, 2, 2, 3)
    for n, c, row, column in np.ndindex(out.shape):
        first = [floor(abs(each) + 0.5) * (1 if each >= 0 else -1) for each in _ROIS[n]]
        left, top, right, bottom = first[0] * 0.5, first[1] * 0.5, (first[2] + 1) * 0.5, (first[3] + 1) * 0.5
        high, wide = max(bottom - top, 0.1) / 2, max(right - left, 0.1) / 3
        rows = [min(max(each, 0), 5) for each in (floor(row * high + top), ceil((row + 1) * high + top))]
        columns = [
            min(max(each, 0), 6) for each in (floor(column * wide + left), ceil((column + 1) * wide + left))
        ]
        cell = x[int(n == 3), (c * 2 + row) * 3 + column, slice(*rows), slice(*columns)]
        assert out[n, c, row, column] == pytest.approx(cell.mean() if cell.size else 0.0)


@pytest.mark.parametrize("rows", [8, 4])
def test_single_precision_adds_no_pixels_to_a_cell(rows: int) -> None:
    x = np.zeros((1, 3, rows + 1, 1), "float32")
    x[:, :, rows] = 1  # below the region
    region = np.array([[0, 0, 0, rows - 1]], "float32")
    grid = {"pooled_height": 3, "pooled_width": 1, "spatial_scale": 1.0, "output_channels": 1}
    (out,) = run_op("psroi_pool", {"X": x, "ROIs": sequences(region, 1)}, grid)
    assert not out.any()


@pytest.mark.parametrize("op_type", ["roi_align", "psroi_pool"])
def test_no_regions_have_no_cells(op_type: str) -> None:
    attrs = {**_GRID, "output_channels": 2} if op_type == "psroi_pool" else _GRID
    (out,) = run_op(op_type, {"X": np.ones((1, 12, 4, 4)), "ROIs": sequences(np.zeros((0, 4)), 0)}, attrs)
    assert out.shape[0] == 0


@pytest.mark.parametrize("with_mask", [True, False])
def test_a_window_takes_its_values_from_shifted_places(with_mask: bool) -> None:
    attrs = {"strides": [2, 1], "paddings": [1, 2], "dilations": [1, 2], "groups": 2, "deformable_groups": 2}
    x, filters = _RNG.standard_normal((2, 4, 5, 5)), _RNG.standard_normal((6, 2, 3, 2))
    offset, mask = _RNG.standard_normal((2, 24, 3, 7)) * 2, _RNG.uniform(0, 1, (2, 12, 3, 7))
    inputs = {"Input": x, "Offset": offset, "Filter": filters}
    if with_mask:
        (out,) = run_op("deformable_conv", {**inputs, "Mask": mask}, attrs)
    else:
        (out,) = run_op("deformable_conv_v1", inputs, attrs)
    assert out.shape == (2, 6, 3, 7)
    for n, m, row, column in np.ndindex(out.shape):
        total: Any = 0.0
        for c, i, j in np.ndindex(2, 3, 2):
            channel = (m // 3) * 2 + c
            at = (channel // 2) * 6 + i * 2 + j
            y = row * 2 - 1 + i + offset[n, 2 * at, row, column]
            z = column - 2 + j * 2 + offset[n, 2 * at + 1, row, column]
            counts = float(mask[n, at, row, column]) if with_mask else 1.0
            total += filters[m, c, i, j] * counts * _between(x[n, channel], y, z)
        assert out[n, m, row, column] == pytest.approx(total)


def test_without_shifts_it_is_a_convolution() -> None:
    x, filters = _RNG.standard_normal((1, 4, 5, 5)), _RNG.standard_normal((2, 4, 3, 3))
    given = {"Input": x, "Filter": filters, "Offset": np.zeros((1, 18, 5, 5)), "Mask": np.ones((1, 9, 5, 5))}
    attrs = {"paddings": [1, 1]}
    (out,) = run_op("deformable_conv", given, attrs)
    np.testing.assert_allclose(out, run_op("conv2d", {"Input": x, "Filter": filters}, attrs)[0], atol=1e-12)


def test_shifts_that_do_not_fit_are_refused() -> None:
    given = {
        "Input": np.zeros((1, 4, 5, 5)),
        "Filter": np.zeros((2, 4, 3, 3)),
        "Offset": np.zeros((1, 17, 3, 3)),
    }
    with pytest.raises((OpError, ExecutionError), match="expected 18 channels of Offset"):
        run_op("deformable_conv_v1", given)


@pytest.mark.parametrize("no_trans", [True, False])
def test_cells_are_shifted_by_parts_of_their_region(no_trans: bool) -> None:
    x, trans = _RNG.standard_normal((2, 8, 5, 6)), _RNG.standard_normal((4, 4, 2, 1))
    attrs = {
        "no_trans": no_trans, "spatial_scale": 0.5, "output_dim": 4, "group_size": [1, 2], "pooled_height": 2,
        "pooled_width": 3, "part_size": [2, 1], "sample_per_part": 2, "trans_std": 0.2,
    }  # fmt: skip
    out, counts = run_op(
        "deformable_psroi_pooling", {"Input": x, "ROIs": sequences(_ROIS, 3, 1), "Trans": trans}, attrs
    )
    for n, c, row, column in np.ndindex(out.shape):
        whole = [floor(abs(each) + 0.5) * (1 if each >= 0 else -1) for each in _ROIS[n]]
        left, top = whole[0] * 0.5 - 0.5, whole[1] * 0.5 - 0.5
        wide, high = max((whole[2] + 1) * 0.5 - 0.5 - left, 0.1), max((whole[3] + 1) * 0.5 - 0.5 - top, 0.1)
        kind = c // 2
        across = 0.0 if no_trans else trans[n, 2 * kind, row, 0] * 0.2
        down = 0.0 if no_trans else trans[n, 2 * kind + 1, row, 0] * 0.2
        group = min(column * 2 // 3, 1)
        values = []
        for i, j in np.ndindex(2, 2):
            y = top + row * high / 2 + down * high + i * high / 4
            z = left + column * wide / 3 + across * wide + j * wide / 6
            if -0.5 <= y <= 4.5 and -0.5 <= z <= 5.5:
                values.append(_between(x[int(n == 3), c * 2 + group], min(max(y, 0), 4), min(max(z, 0), 5)))
        assert counts[n, c, row, column] == len(values)
        assert out[n, c, row, column] == pytest.approx(sum(values) / max(len(values), 1))


def test_an_upright_rectangle_is_cut_out() -> None:
    x = _RNG.standard_normal((2, 2, 6, 8))
    rois = sequences(np.array([[1.0, 2, 4, 2, 4, 4, 1, 4], [6, 4, 9, 4, 9, 7, 6, 7]]), 1, 1)
    attrs = {"transformed_height": 3, "transformed_width": 4}
    out, mask, _ = run_op("roi_perspective_transform", {"X": x, "ROIs": rois}, attrs)
    np.testing.assert_allclose(out[0], x[0, :, 2:5, 1:5], atol=1e-9)
    assert mask[0].all()
    # Of the second, rows 6 and 7 and columns 8 and 9 lie outside of the image.
    assert mask[1, 0].astype(bool).any()
    assert not mask[1, 0, -1].any()


def test_corners_of_a_quadrangle_become_those_of_a_rectangle() -> None:
    x = _RNG.standard_normal((1, 1, 9, 9))
    quad = np.array([[1.0, 1.0, 6.0, 2.0, 7.0, 7.0, 2.0, 6.0]])
    attrs = {"transformed_height": 6, "transformed_width": 6}
    out, mask, matrix = run_op("roi_perspective_transform", {"X": x, "ROIs": sequences(quad, 1)}, attrs)
    for (row, column), (z, y) in zip([(0, 0), (0, 5), (5, 5), (5, 0)], quad.reshape(4, 2), strict=True):
        u, v, w = matrix[0].reshape(3, 3) @ [column, row, 1]
        assert (u / w, v / w) == pytest.approx((z, y), abs=1e-4)
        assert mask[0, 0, row, column] == 1
        assert out[0, 0, row, column] == pytest.approx(x[0, 0, int(y), int(z)], abs=1e-3)


def test_matrices_divide_by_a_little_more_than_the_area_as_in_the_original() -> None:
    quad = np.array([[0.1, 0.1, 0.4, 0.15, 0.45, 0.4, 0.12, 0.35]])
    attrs = {"transformed_height": 3, "transformed_width": 3}
    _, _, matrix = run_op(
        "roi_perspective_transform", {"X": np.zeros((1, 1, 2, 2)), "ROIs": sequences(quad, 1)}, attrs
    )
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = quad.reshape(4, 2)
    area = (x1 - x2) * (y3 - y2) - (x3 - x2) * (y1 - y2) + 1e-5
    assert area < 0.1
    bent = x0 - x1 + x2 - x3, y0 - y1 + y2 - y3
    assert matrix[0, 6] == pytest.approx((bent[0] * (y3 - y2) - (x3 - x2) * bent[1]) / area / 2, rel=1e-9)
    assert matrix[0, 7] == pytest.approx(((x1 - x2) * bent[1] - bent[0] * (y1 - y2)) / area / 2, rel=1e-9)
