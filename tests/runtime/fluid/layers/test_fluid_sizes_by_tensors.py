# SPDX-License-Identifier: Apache-2.0
"""Sizes, offsets and counts that variables hold: read in every run, -1 before, with gradients, and kept in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError

_RNG = np.random.default_rng(8)


@dataclass(frozen=True)
class _Case:
    """A layer over x and numbers that are fed, and what numpy says of it for each feed."""

    layer: Callable[..., Any]
    x: tuple[int, ...]
    told: tuple[tuple[int, ...], ...]  # shapes of the variables that hold numbers
    feeds: tuple[tuple[Any, ...], ...]
    numpy: Callable[..., Any]
    shape: tuple[int, ...]  # what is known before
    differentiable: bool = True


_CASES = {
    "reshape, actual_shape": _Case(
        lambda x, n: layers.reshape(x, [-1, 6], actual_shape=n),
        (4, 6),
        ((2,),),
        (([2, 12],), ([-1, 6],), ([0, 6],)),
        lambda x, n: x.reshape([len(x) if size == 0 else size for size in n]),
        (-1, 6),
    ),
    "reshape, actual_shape says what the shape does not": _Case(
        lambda x, n: layers.reshape(x, [4, -1, 3], actual_shape=n),
        (4, 6),
        ((3,),),
        (([2, 4, 3],),),
        lambda x, n: x.reshape(n),
        (4, -1, 3),
    ),
    "reshape, variables among the sizes": _Case(
        lambda x, a, b: layers.reshape(x, [0, a, b]),
        (4, 6),
        ((1,), (1,)),
        (([2], [3]), ([6], [-1])),
        lambda x, a, b: x.reshape(4, a[0], b[0]),
        (4, -1, -1),
    ),
    "reshape, one variable": _Case(
        lambda x, n: layers.reshape(x, n),
        (4, 6),
        ((3,),),
        (([3, 2, 4],), ([1, 24, 1],)),
        lambda x, n: x.reshape(n),
        (-1, -1, -1),
    ),
    "expand, variables among the times": _Case(
        lambda x, n: layers.expand(x, [n, 2]),
        (2, 3),
        ((1,),),
        (([1],), ([3],)),
        lambda x, n: np.tile(x, (n[0], 2)),
        (-1, 6),
    ),
    "expand, one variable": _Case(
        lambda x, n: layers.expand(x, n),
        (2, 3),
        ((2,),),
        (([1, 1],), ([3, 2],)),
        np.tile,
        (-1, -1),
    ),
    "topk": _Case(
        lambda x, n: layers.topk(x, n)[0],
        (2, 5),
        ((1,),),
        (([1],), ([3],), ([5],)),
        lambda x, n: -np.sort(-x, axis=1)[:, : n[0]],
        (2, -1),
        differentiable=False,
    ),
    "pad2d": _Case(
        lambda x, n: layers.pad2d(x, n, pad_value=2.0),
        (1, 2, 3, 4),
        ((4,),),
        (([0, 0, 0, 0],), ([1, 0, 2, 3],)),
        lambda x, n: np.pad(x, ((0, 0), (0, 0), (n[0], n[1]), (n[2], n[3])), constant_values=2),
        (1, 2, -1, -1),
    ),
    "pad2d, NHWC": _Case(
        lambda x, n: layers.pad2d(x, n, "reflect", data_format="NHWC"),
        (1, 3, 4, 2),
        ((4,),),
        (([1, 0, 2, 3],),),
        lambda x, n: np.pad(x, ((0, 0), (n[0], n[1]), (n[2], n[3]), (0, 0)), mode="reflect"),
        (1, -1, -1, 2),
    ),
    "crop, offsets": _Case(
        lambda x, n: layers.crop(x, [2, 3], offsets=n),
        (4, 5),
        ((2,),),
        (([0, 0],), ([2, 1],)),
        lambda x, n: x[n[0] : n[0] + 2, n[1] : n[1] + 3],
        (2, 3),
    ),
    "crop, a variable of the shape, and offsets": _Case(
        lambda x, n: layers.crop(x, layers.fill_constant([2, 3], "float32", 0.0), offsets=n),
        (4, 5),
        ((2,),),
        (([2, 2],),),
        lambda x, n: x[2:4, 2:5],
        (2, 3),
    ),
    "slice, variables among starts and ends": _Case(
        lambda x, a, b: layers.slice(x, [0, 2], [a, 1], [b, 3]),
        (4, 2, 5),
        ((1,), (1,)),
        (([1], [3]), ([-3], [100]), ([2], [2])),
        lambda x, a, b: x[a[0] : b[0], :, 1:3],
        (-1, 2, 2),
    ),
    "sequence_mask": _Case(
        lambda x, n: layers.sequence_mask(layers.abs(x), n, "float32"),
        (4,),
        ((1,),),
        (([1],), ([3],)),
        lambda x, n: (np.arange(n[0]) < np.abs(x)[:, None]).astype("float32"),
        (4, -1),
        differentiable=False,
    ),
    "slice, one variable of starts": _Case(
        lambda x, a: layers.slice(x, [0, 1], a, [4, -1]),
        (4, 5),
        ((2,),),
        (([1, -3],), ([0, 0],)),
        lambda x, a: x[a[0] : 4, a[1] : -1],
        (-1, -1),
    ),
}


def _built(case: _Case) -> tuple[Any, Any, list[str]]:
    x = layers.data("x", list(case.x), append_batch_size=False, stop_gradient=False)
    names = [f"n{at}" for at, _ in enumerate(case.told)]
    told = [
        layers.data(name, list(shape), append_batch_size=False, dtype=dtype)
        for name, shape, dtype in zip(names, case.told, ("int32", "int64"), strict=False)
    ]
    return x, case.layer(x, *told), names


def _fed(case: _Case, x: Any, numbers: tuple[Any, ...]) -> dict[str, Any]:
    told = zip(numbers, ("int32", "int64"), strict=False)
    return {"x": x, **{f"n{at}": np.array(each, dtype) for at, (each, dtype) in enumerate(told)}}


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES)
def test_a_variable_decides_in_each_run(case: _Case, tmp_path: Path) -> None:
    _, out, names = _built(case)
    assert out.shape == case.shape
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path), ["x", *names], [out], exe)
    loaded, fed, targets = fluid.io.load_inference_model(str(tmp_path), exe)
    assert fed == ["x", *names]
    for numbers in case.feeds:
        x = _RNG.standard_normal(case.x).astype("float32")
        expected = case.numpy(x, *numbers)
        for program, fetched in ((fluid.default_main_program(), [out]), (loaded, targets)):
            (found,) = exe.run(program, feed=_fed(case, x, numbers), fetch_list=fetched)
            assert found.shape == expected.shape
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name) for name, case in _CASES.items() if case.differentiable]
)
def test_what_a_variable_decides_has_its_gradient(case: _Case) -> None:
    """The sum of weighed results: each element's gradient is the weights of where it went, found by moving it by 1."""
    x, out, _ = _built(case)
    weights = layers.data("w", [-1] * len(out.shape), append_batch_size=False)
    loss = layers.reduce_sum(layers.elementwise_mul(out, weights))
    (grad,) = fluid.backward.gradients([loss], [x])
    exe = fluid.Executor(fluid.CPUPlace())
    for numbers in case.feeds:
        plain = np.zeros(case.x, "float32")
        base = case.numpy(plain, *numbers)
        w = _RNG.integers(1, 9, base.shape).astype("float32")
        (found,) = exe.run(feed={**_fed(case, plain, numbers), "w": w}, fetch_list=[str(grad and grad.name)])
        expected = np.zeros(case.x)
        for at in np.ndindex(case.x):
            moved = plain.copy()
            moved[at] = 1
            expected[at] = ((case.numpy(moved, *numbers) - base) * w).sum()
        np.testing.assert_allclose(found, expected)


def test_a_variable_decides_how_many_classes_there_are(tmp_path: Path) -> None:
    ids = layers.data("ids", [1], dtype="int64")
    depth = layers.data("depth", [1], dtype="int32", append_batch_size=False)
    out = layers.one_hot(ids, depth)
    assert out.shape == (-1, -1)
    exe = fluid.Executor(fluid.CPUPlace())
    fluid.io.save_inference_model(str(tmp_path), ["ids", "depth"], [out], exe)
    loaded, _, targets = fluid.io.load_inference_model(str(tmp_path), exe)
    for many in (3, 5):
        feed = {"ids": np.array([[2], [0]]), "depth": np.array([many], "int32")}
        (found,) = exe.run(loaded, feed=feed, fetch_list=targets)
        np.testing.assert_array_equal(found, np.eye(many)[[2, 0]])
    with pytest.raises(ExecutionError, match=r"number 2 is not in \[0, 2\)"):
        exe.run(loaded, feed={**feed, "depth": np.array([2], "int32")}, fetch_list=targets)


def test_shapes_of_other_variables_are_sizes() -> None:
    x, like = layers.data("x", [6]), layers.data("like", [3])
    out = layers.reshape(x, [-1, 2], actual_shape=layers.shape(like))
    two = layers.fill_constant([1], "int64", 2)
    best = layers.topk(out, two)[1]
    feed = {"x": np.arange(12.0, dtype="float32").reshape(2, 6), "like": np.zeros((4, 3), "float32")}
    found, places = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[out, best])
    np.testing.assert_array_equal(found, np.arange(12).reshape(4, 3))
    np.testing.assert_array_equal(places, [[2, 1]] * 4)


@pytest.mark.parametrize(
    ("layer", "numbers", "told"),
    [
        (lambda x, n: layers.topk(x, n), [7], "k: expected 1 .*, got 7"),
        (lambda x, n: layers.expand(x, [n, 1]), [0], r"expected 2 positive numbers .* got \(0, 1\)"),
        (
            lambda x, n: layers.reshape(x, [n, -1]),
            [5],
            r"24 elements, which cannot be divided into shape \(5, -1\)",
        ),
        (lambda x, n: layers.crop(x, [1, 1], n), [1, 6], r"inside X \(4, 6\), got \(1, 1\) at \(1, 6\)"),
        (
            lambda x, n: layers.slice(x, [0], n, [1]),
            [1, 2],
            "axes, starts and ends must have the same length",
        ),
    ],
)
def test_numbers_that_do_not_fit_are_told_with_what_was_expected(
    layer: Callable[..., Any], numbers: list[int], told: str
) -> None:
    x = layers.data("x", [4, 6], append_batch_size=False)
    out = layer(x, layers.data("n", [len(numbers)], append_batch_size=False, dtype="int32"))
    feed = {"x": np.zeros((4, 6), "float32"), "n": np.array(numbers, "int32")}
    with pytest.raises(ExecutionError, match=told):
        fluid.Executor(fluid.CPUPlace()).run(
            feed=feed, fetch_list=[out[0] if isinstance(out, tuple) else out]
        )


def test_sizes_that_are_no_whole_numbers_are_refused() -> None:
    x, n = layers.data("x", [6]), layers.data("n", [1], append_batch_size=False)
    feed = {"x": np.zeros((2, 6), "float32"), "n": np.ones(1, "float32")}
    with pytest.raises(ExecutionError, match=r"expected whole numbers .* got a tensor of float32"):
        fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[layers.topk(x, n)[0]])
    with pytest.raises(TypeError, match="reshape: shape: expected a list of numbers and variables, got 3"):
        layers.reshape(x, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="crop: shape: expected numbers"):
        layers.crop(x)


def test_windows_of_the_real_images_of_a_batch_are_read_in_each_run(tmp_path: Path) -> None:
    x = layers.data("x", [1, 4, 4])
    real = layers.data("real", [2], dtype="int32")
    out = layers.im2sequence(x, [2, 2], 2, 0, real, out_stride=2)
    assert out.shape == (-1, 4)
    exe = fluid.Executor(fluid.CPUPlace())
    fluid.io.save_inference_model(str(tmp_path), ["x", "real"], [out], exe)
    loaded, _, targets = fluid.io.load_inference_model(str(tmp_path), exe)
    images = np.arange(32.0, dtype="float32").reshape(2, 1, 4, 4)
    feed = {"x": images, "real": np.array([[8, 4], [3, 8]], "int32")}
    (found,) = exe.run(loaded, feed=feed, fetch_list=targets, return_numpy=False)
    np.testing.assert_array_equal(
        np.array(found), [[0, 1, 4, 5], [8, 9, 12, 13], [16, 17, 20, 21], [18, 19, 22, 23]]
    )
    assert found.recursive_sequence_lengths() == [[2, 2]]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_channels_are_scaled_in_either_layout(layout: str, tmp_path: Path) -> None:
    size = [3, 2, 4] if layout == "NCHW" else [2, 4, 3]
    x = layers.data("x", size)
    values = {"scale": np.array([1, 2, 3], "float32"), "bias": np.array([0, 5, -1], "float32")}
    scale, bias = (layers.assign(value) for value in values.values())
    out = layers.affine_channel(x, scale, bias, data_layout=layout, act="relu")
    exe = fluid.Executor(fluid.CPUPlace())
    fluid.io.save_inference_model(str(tmp_path), ["x"], [out], exe)
    loaded, _, targets = fluid.io.load_inference_model(str(tmp_path), exe)
    images = _RNG.standard_normal((2, *size)).astype("float32")
    (found,) = exe.run(loaded, feed={"x": images}, fetch_list=targets)
    shape = (3, 1, 1) if layout == "NCHW" else (3,)
    expected = images * values["scale"].reshape(shape) + values["bias"].reshape(shape)
    np.testing.assert_allclose(found, np.maximum(expected, 0), rtol=1e-6)


def test_other_layouts_are_refused() -> None:
    x, one = layers.data("x", [3, 2, 2]), layers.fill_constant([3], "float32", 1.0)
    with pytest.raises(OpError, match=r"data_layout: .*'NCHW', 'NHWC'.*'CHWN'"):
        layers.affine_channel(x, one, one, "CHWN")
    with pytest.raises(fluid.errors.FluidError, match="give scale and bias"):
        layers.affine_channel(x)


@pytest.mark.parametrize("rows", [3, 1])
def test_rows_of_any_rank_have_an_angle(rows: int) -> None:
    x = layers.data("x", [3, 2, 2], append_batch_size=False)
    y = layers.data("y", [rows, 2, 2], append_batch_size=False)
    out = layers.cos_sim(x, y)
    assert out.shape == (3, 1)
    a, b = (_RNG.standard_normal((n, 2, 2)).astype("float32") for n in (3, rows))
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": a, "y": b}, fetch_list=[out])
    left, right = a.reshape(3, 4), b.reshape(rows, 4)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    np.testing.assert_allclose(found[:, 0], (left * right).sum(1) / norms, rtol=1e-5)


def test_clips_of_an_lstm_and_the_axis_of_a_loss_are_kept_in_files(tmp_path: Path) -> None:
    rows = layers.data("rows", [8], lod_level=1)
    out, cell = layers.dynamic_lstmp(rows, 8, 3, cell_clip=0.1, proj_clip=0.05)
    logits, label = layers.data("logits", [4, 3]), layers.data("label", [1, 3], dtype="int64")
    cost = layers.softmax_with_cross_entropy(logits, label, axis=1)
    assert not isinstance(cost, tuple)
    assert cost.shape == (-1, 1, 3)
    exe = fluid.Executor(fluid.CPUPlace())
    fluid.default_startup_program().random_seed = 1
    exe.run(fluid.default_startup_program())
    fluid.io.save_inference_model(str(tmp_path), ["rows", "logits", "label"], [out, cell, cost], exe)
    loaded, _, targets = fluid.io.load_inference_model(str(tmp_path), exe)
    sequences = fluid.create_lod_tensor(
        9 * _RNG.standard_normal((5, 8)).astype("float32"), [[3, 2]], fluid.CPUPlace()
    )
    scores = _RNG.standard_normal((2, 4, 3)).astype("float32")
    feed: dict[str, Any] = {"rows": sequences, "logits": scores, "label": _RNG.integers(0, 4, (2, 1, 3))}
    outs, cells, costs = (
        np.array(each) for each in exe.run(loaded, feed=feed, fetch_list=targets, return_numpy=False)
    )
    assert abs(outs).max() == np.float32(0.05)
    assert abs(cells).max() == np.float32(0.1)
    powers = np.exp(scores)
    chances = np.take_along_axis(powers / powers.sum(1, keepdims=True), feed["label"], 1)
    np.testing.assert_allclose(costs, -np.log(chances), rtol=1e-5)


@pytest.mark.parametrize("resized", [layers.resize_bilinear, layers.resize_nearest])
def test_images_of_unknown_size_grow_by_a_scale_and_keep_it_in_files(resized: Any, tmp_path: Path) -> None:
    exe = fluid.Executor(fluid.CPUPlace())
    x = layers.data("x", [-1, 2, -1, -1], append_batch_size=False)
    out = resized(x, scale=2.5)
    assert out.shape == (-1, 2, -1, -1)
    fluid.io.save_inference_model(tmp_path, ["x"], [out], exe)
    loaded, _, targets = fluid.io.load_inference_model(tmp_path, exe)
    for height, width in ((3, 5), (4, 1)):
        pixels = _RNG.standard_normal((1, 2, height, width)).astype("float32")
        rows, columns = int(2.5 * height), int(2.5 * width)
        down, across = (np.arange(n) * (size - 1) / (n - 1) for n, size in ((rows, height), (columns, width)))
        (found,) = exe.run(loaded, feed={"x": pixels}, fetch_list=targets)
        if resized is layers.resize_nearest:
            expected: Any = pixels[:, :, (down + 0.5).astype(int)][..., (across + 0.5).astype(int)]
        else:
            by_rows = [[np.interp(down, range(height), column) for column in image.T] for image in pixels[0]]
            turned = np.array(by_rows).transpose(0, 2, 1)
            expected = [[[np.interp(across, range(width), row) for row in image] for image in turned]]
        np.testing.assert_allclose(found, expected, atol=1e-5)
