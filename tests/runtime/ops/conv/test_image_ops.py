# SPDX-License-Identifier: Apache-2.0
"""What operators on images and volumes, resized ones and regions compute, by definition or worked by hand."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from paddle.ops.base.errors import OpError
from paddle.ops.base.lod import LoDArray, offsets_of
from paddle.ops.base.registry import lookup
from tests.runtime.ops.run_op import run_op

_RNG = np.random.default_rng(11)
_IMAGES = np.random.default_rng(12).standard_normal((2, 4, 6, 5))
_VOLUME_RNG = np.random.default_rng(17)
_IMAGE = np.arange(12.0).reshape(1, 1, 3, 4)


def _convolved(x: Any, filters: Any, stride: int, pad: int, dilation: int, groups: int) -> Any:
    """Convolution by its definition, one output element at a time."""
    n, _, height, width = x.shape
    count, per_group, kh, kw = filters.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    down = (height + 2 * pad - dilation * (kh - 1) - 1) // stride + 1
    across = (width + 2 * pad - dilation * (kw - 1) - 1) // stride + 1
    out = np.zeros((n, count, down, across))
    for image, f, i, j in np.ndindex(out.shape):
        first = f // (count // groups) * per_group
        window = padded[
            image,
            first : first + per_group,
            i * stride : i * stride + dilation * (kh - 1) + 1 : dilation,
            j * stride : j * stride + dilation * (kw - 1) + 1 : dilation,
        ]
        out[image, f, i, j] = (window * filters[f]).sum()
    return out


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_is_what_its_definition_says(stride: int, pad: int, dilation: int, groups: int) -> None:
    filters = _RNG.standard_normal((6, 4 // groups, 2, 2))
    attrs = {
        "strides": [stride, stride],
        "paddings": [pad, pad],
        "dilations": [dilation, dilation],
        "groups": groups,
    }
    (out,) = run_op("conv2d", {"Input": _IMAGES, "Filter": filters}, attrs)
    np.testing.assert_allclose(out, _convolved(_IMAGES, filters, stride, pad, dilation, groups), atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 3, 9, 9), (40, 3, 9, 9), (2, 3, 6, 6)])
def test_many_images_and_small_images_are_convolved_alike(shape: tuple[int, ...]) -> None:
    images, filters = _RNG.standard_normal(shape), _RNG.standard_normal((4, 3, 3, 3))
    (out,) = run_op("conv2d", {"Input": images, "Filter": filters})
    np.testing.assert_allclose(out, _convolved(images, filters, 1, 0, 1, 1), atol=1e-12)


def test_a_transposed_convolution_grows_what_a_convolution_shrinks() -> None:
    filters = np.ones((1, 1, 2, 2))
    attrs = {"strides": [2, 2]}
    (out,) = run_op("conv2d_transpose", {"Input": np.array([[[[1.0, 2.0]]]]), "Filter": filters}, attrs)
    np.testing.assert_allclose(out, [[[[1, 1, 2, 2], [1, 1, 2, 2]]]])


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2]}, [[5, 7], [13, 15]]),
        ({"pooling_type": "avg", "ksize": [2, 2], "strides": [2, 2]}, [[2.5, 4.5], [10.5, 12.5]]),
        (
            {"pooling_type": "max", "ksize": [3, 3], "strides": [2, 2], "ceil_mode": True},
            [[10, 11], [14, 15]],
        ),
        (
            {"pooling_type": "avg", "ksize": [3, 3], "strides": [2, 2], "ceil_mode": True},
            [[5, 6.5], [11, 12.5]],
        ),
        (
            {
                "pooling_type": "avg",
                "ksize": [2, 2],
                "strides": [3, 3],
                "paddings": [1, 1],
                "exclusive": False,
            },
            [[0, 1.25], [5, 12.5]],
        ),
        (
            {"pooling_type": "avg", "ksize": [2, 2], "strides": [3, 3], "paddings": [1, 1]},
            [[0, 2.5], [10, 12.5]],
        ),
        ({"pooling_type": "max", "ksize": [1, 1], "global_pooling": True}, [[15]]),
        ({"pooling_type": "avg", "ksize": [1, 1], "global_pooling": True}, [[7.5]]),
        (
            {
                "pooling_type": "avg",
                "ksize": [9, 9],
                "paddings": [3, 3],
                "global_pooling": True,
                "exclusive": False,
            },
            [[7.5]],
        ),
    ],
)
def test_pooling_worked_by_hand(attrs: dict[str, Any], expected: Any) -> None:
    image = np.arange(16.0).reshape(1, 1, 4, 4)
    np.testing.assert_allclose(run_op("pool2d", {"X": image}, attrs)[0][0, 0], expected)


def _pooled(x: Any, attrs: dict[str, Any]) -> Any:
    """Pooling of images as the original's loops do it; its whole numbers divide towards zero."""
    counts, inner = [], []
    for size, kernel, stride, pad in zip(
        x.shape[2:], attrs["ksize"], attrs["strides"], attrs["paddings"], strict=True
    ):
        room = size - kernel + 2 * pad + (stride - 1 if attrs["ceil_mode"] else 0)
        counts.append(int(room / stride) + 1)
        firsts = [at * stride - pad for at in range(counts[-1])]
        inner.append([slice(max(first, 0), min(first + kernel, size)) for first in firsts])
    out = np.zeros((*x.shape[:2], *counts))
    for place in np.ndindex(*counts):
        cell = x[(..., *(side[at] for side, at in zip(inner, place, strict=True)))].reshape(*x.shape[:2], -1)
        whole = cell.shape[2] if attrs["exclusive"] else np.prod(attrs["ksize"])
        out[(..., *place)] = cell.max(axis=2) if attrs["pooling_type"] == "max" else cell.sum(axis=2) / whole
    return out


@pytest.mark.parametrize("op_type", ["pool2d", "pool3d"])
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "ceil"),
    [
        (7, 7, 0, False),  # two short of a stride
        (6, 2, 0, False),
        (7, 3, 0, False),
        (9, 3, 0, True),  # with ceil_mode up to two strides less one
        (7, 2, 0, True),
        (8, 4, 1, False),
        (3, 2, 1, True),
        (2, 2, 0, True),
        (3, 2, 1, False),
    ],
)
def test_pooling_is_what_its_definition_says_where_windows_are_larger_than_images(
    op_type: str, kind: str, kernel: int, stride: int, pad: int, ceil: bool
) -> None:
    sides = int(op_type[4])
    x = np.random.default_rng(kernel).standard_normal((2, 3, *(5, 6, 6)[:sides]))
    for exclusive in (True, False):
        attrs = {"ksize": [kernel] * sides, "strides": [stride] * sides, "paddings": [pad] * sides}
        attrs |= {"ceil_mode": ceil, "exclusive": exclusive, "pooling_type": kind}  # type: ignore[dict-item]
        np.testing.assert_allclose(run_op(op_type, {"X": x}, attrs)[0], _pooled(x, attrs), atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "stride", "ceil"), [(6, 1, False), (8, 3, False), (10, 3, True), (7, 1, True)]
)
def test_a_window_a_stride_too_large_is_refused(kernel: int, stride: int, ceil: bool) -> None:
    attrs = {"ksize": [kernel] * 2, "strides": [stride] * 2, "ceil_mode": ceil, "pooling_type": "avg"}
    with pytest.raises(OpError, match="smaller than the extent"):
        run_op("pool2d", {"X": np.zeros((1, 1, 5, 5))}, attrs)


def test_a_filter_less_than_a_stride_too_large_has_one_place() -> None:
    filters = _RNG.standard_normal((3, 4, 7, 7))
    (out,) = run_op("conv2d", {"Input": _IMAGES, "Filter": filters}, {"strides": [3, 3]})
    expected = np.einsum("nchw,fchw->nf", _IMAGES, filters[:, :, :6, :5])
    np.testing.assert_allclose(out[:, :, 0, 0], expected, atol=1e-12)
    assert out.shape == (2, 3, 1, 1)


def test_a_transposed_convolution_refuses_sizes_that_its_filters_do_not_fit() -> None:
    given = {"Input": np.ones((1, 1, 1, 1)), "Filter": np.ones((1, 1, 3, 3))}
    for wrong in (2, 5):
        with pytest.raises(OpError, match="output_size"):
            run_op("conv2d_transpose", given, {"strides": [2, 2], "output_size": [wrong, 3]})


def test_a_window_of_nothing_but_padding_gives_zero() -> None:
    attrs = {"ksize": [2, 2], "strides": [2, 2], "paddings": [1, 1], "ceil_mode": True}
    for kind in ("max", "avg"):
        (out,) = run_op("pool2d", {"X": np.full((1, 1, 5, 5), -3.0)}, {"pooling_type": kind, **attrs})
        assert out.shape == (1, 1, 4, 4)
        assert not out[0, 0, 3].any()
        assert (out[0, 0, :3, :3] == -3).all()


def test_lrn_worked_by_definition() -> None:
    out, mid = run_op("lrn", {"X": _IMAGES}, {"n": 3, "k": 1.0, "alpha": 0.5, "beta": 0.75})
    squares = np.pad(_IMAGES**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    expected = 1 + 0.5 * (squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:])
    np.testing.assert_allclose(mid, expected)
    np.testing.assert_allclose(out, _IMAGES * expected**-0.75)


def test_batch_norm_gives_each_channel_mean_bias_and_deviation_scale() -> None:
    channels = {
        "Scale": np.full(4, 2.0),
        "Bias": np.full(4, 5.0),
        "Mean": np.zeros(4),
        "Variance": np.zeros(4),
    }
    y, mean, variance, saved_mean, saved_variance = run_op("batch_norm", {"X": _IMAGES, **channels})
    np.testing.assert_allclose(y.mean(axis=(0, 2, 3)), 5, atol=1e-12)
    np.testing.assert_allclose(y.std(axis=(0, 2, 3)), 2, rtol=1e-4)
    np.testing.assert_allclose(mean, 0.1 * _IMAGES.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(variance, 0.1 * _IMAGES.var(axis=(0, 2, 3)))
    np.testing.assert_allclose(saved_mean, _IMAGES.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(saved_variance, 1 / np.sqrt(_IMAGES.var(axis=(0, 2, 3)) + 1e-5))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_of_volumes_is_what_its_definition_says(groups: int) -> None:
    x, filters = (
        _VOLUME_RNG.standard_normal((2, 4, 4, 5, 3)),
        _VOLUME_RNG.standard_normal((2, 4 // groups, 2, 2, 2)),
    )
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
    images, weights = _VOLUME_RNG.standard_normal(x), _VOLUME_RNG.standard_normal(filters)
    flat: dict[str, object] = {"strides": (1, 1), "paddings": (1, 0), "groups": 1, "dilations": (1, 1)}
    deep: dict[str, object] = {
        "strides": (1, 1, 1),
        "paddings": (0, 1, 0),
        "groups": 1,
        "dilations": (1, 1, 1),
    }
    expected = lookup("conv2d").kernel(images, weights, groups=1, attrs=flat)
    out = lookup("conv3d").kernel(images[:, :, None], weights[:, :, None], groups=1, attrs=deep)
    np.testing.assert_allclose(out[:, :, 0], expected, atol=1e-12)
    dout, needs = _VOLUME_RNG.standard_normal(expected.shape), frozenset({"Input@GRAD", "Filter@GRAD"})
    both = lookup("conv2d_grad").kernel(images, weights, dout, groups=1, attrs=flat, needs=needs)
    deeper = lookup("conv3d_grad").kernel(
        images[:, :, None], weights[:, :, None], dout[:, :, None], groups=1, attrs=deep, needs=needs
    )
    for ours, theirs in zip(deeper, both, strict=True):
        np.testing.assert_allclose(ours[:, :, 0], theirs, atol=1e-11)


def test_pooling_of_flat_volumes_is_pooling_of_images() -> None:
    images = _VOLUME_RNG.standard_normal((2, 3, 5, 6))
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


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("counts", [(1, 1, 1), (2, 3, 4), (5, 6, 5), (7, 1, 9)])
@pytest.mark.parametrize("sides", [2, 3])
def test_cells_lie_evenly_over_an_image_and_overlap(sides: int, counts: tuple[int, ...], kind: str) -> None:
    x: Any = _VOLUME_RNG.standard_normal((2, 3, *(5, 6, 5)[:sides]))
    expected = np.zeros((2, 3, *counts[:sides]))
    for place in np.ndindex(*counts[:sides]):
        each = zip(place, x.shape[2:], counts, strict=False)
        cell = [slice(at * size // count, -((at + 1) * size // -count)) for at, size, count in each]
        pixels = x[(..., *cell)].reshape(2, 3, -1)
        expected[(..., *place)] = pixels.max(axis=2) if kind == "max" else pixels.mean(axis=2)
    attrs = {"pooling_type": kind, "ksize": counts[:sides], "adaptive": True, "ceil_mode": True}
    for exclusive in (True, False):
        (out,) = run_op(f"pool{sides}d", {"X": x}, {**attrs, "exclusive": exclusive})
        np.testing.assert_allclose(out, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "size"), [((2, 8, 4, 6), 2), ((1, 18, 3, 9), 3), ((0, 4, 2, 2), 2), ((1, 2, 3, 1), 1)]
)
def test_space_goes_to_depth_in_the_order_of_the_originals_loops(shape: tuple[int, ...], size: int) -> None:
    x = np.arange(np.prod(shape), dtype="float64").reshape(shape)
    _, channels, height, width = shape
    laid = np.zeros((shape[0], channels // size**2, height * size, width * size))
    for n, c, h, w in np.ndindex(*shape):
        block, image = divmod(c, channels // size**2)
        laid[n, image, h * size + block // size, w * size + block % size] = x[n, c, h, w]
    (out,) = run_op("space_to_depth", {"X": x}, {"blocksize": size})
    assert out.shape == (shape[0], channels * size**2, height // size, width // size)
    np.testing.assert_array_equal(out.ravel(), laid.ravel())


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


def _between(image: Any, rows: Any, columns: Any) -> Any:
    """Pixels between four others of an image (H, W), by the formula."""
    low, left = rows.astype(int), columns.astype(int)
    down, right = np.minimum(low + 1, image.shape[0] - 1), np.minimum(left + 1, image.shape[1] - 1)
    d, r = (rows - low)[:, None], columns - left
    above = image[low][:, left] * (1 - r) + image[low][:, right] * r
    below = image[down][:, left] * (1 - r) + image[down][:, right] * r
    return above * (1 - d) + below * d


def test_bytes_between_pixels_are_rounded_towards_zero_and_do_not_overflow() -> None:
    image = np.random.default_rng(5).integers(0, 256, (4, 5), dtype="uint8")
    given = {"X": image[None, None]}
    (out,) = run_op("bilinear_interp", given, {"out_h": 7, "out_w": 9})
    expected = _between(image.astype(float), np.arange(7) * 3 / 6, np.arange(9) * 4 / 8)
    assert out.dtype == np.uint8
    np.testing.assert_array_equal(out[0, 0], expected.astype("uint8"))
    (nearest,) = run_op("nearest_interp", given, {"out_h": 8, "out_w": 10, "align_corners": False})
    np.testing.assert_array_equal(nearest[0, 0], image.repeat(2, axis=0).repeat(2, axis=1))


@pytest.mark.parametrize("op_type", ["bilinear_interp", "nearest_interp"])
def test_an_image_of_unknown_size_grows_by_its_scale(op_type: str) -> None:
    both = {"scale": 1.5, "out_h": 9, "out_w": 9}
    (out,) = run_op(op_type, {"X": _IMAGE}, both)
    np.testing.assert_array_equal(out, run_op(op_type, {"X": _IMAGE}, {"out_h": 4, "out_w": 6})[0])
    (sized,) = run_op(op_type, {"X": _IMAGE, "OutSize": np.array([5, 2], "int32")}, both)
    assert sized.shape == (1, 1, 5, 2)


def test_corners_of_regions_on_a_half_go_away_from_zero() -> None:
    x = np.arange(25.0).reshape(1, 1, 5, 5)
    rois = LoDArray(np.array([[-1.0, -1.0, 1.0, 1.0], [1.0, 3.0, 5.0, 7.0]]), offsets_of([[2]]))
    grid = {"spatial_scale": 0.5, "pooled_height": 3, "pooled_width": 3}
    (out, places) = run_op("roi_pool", {"X": x, "ROIs": rois}, grid)
    # -0.5 becomes -1, 0.5 becomes 1, 1.5 becomes 2: three rows, of which the image lacks the first.
    assert out[0, 0].tolist() == [[0, 0, 0], [0, 0, 1], [0, 5, 6]]
    assert places[0, 0].tolist() == [[-1, -1, -1], [-1, 0, 1], [-1, 5, 6]]
    assert out[1, 0].tolist() == [[11, 12, 13], [16, 17, 18], [21, 22, 23]]


def test_regions_give_the_greatest_of_each_cell() -> None:
    rois = LoDArray(np.array([[0.0, 0.0, 3.0, 2.0], [2.0, 1.0, 2.0, 1.0]]), offsets_of([[2]]))
    out, places = run_op("roi_pool", {"X": _IMAGE, "ROIs": rois}, {"pooled_height": 1, "pooled_width": 2})
    np.testing.assert_allclose(out[:, 0, 0], [[9, 11], [6, 6]])
    assert places[0, 0, 0].tolist() == [9, 11]
