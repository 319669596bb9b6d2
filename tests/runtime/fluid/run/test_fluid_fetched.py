# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: UP031 - how scripts of the time print is what is tested
"""What scripts do with fetched values: one number converts and prints as one, whatever rank it came with."""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import core


def fetch(return_numpy: bool = True) -> list[Any]:
    """Values of shapes (1,), (3, 1), (1, 1) and (3, 4): 2.5; 0, 4, 8; 2.5; 0 to 11."""
    x = fluid.layers.data("x", [4])
    mean = fluid.layers.mean(x) - 3.0
    first = fluid.layers.slice(x, axes=[1], starts=[0], ends=[1])
    exe = fluid.Executor(fluid.CPUPlace())
    values: list[Any] = exe.run(
        feed={"x": np.arange(12, dtype="float32").reshape(3, 4)},
        fetch_list=[mean, first, fluid.layers.reshape(mean, [1, 1]), x],
        return_numpy=return_numpy,
    )
    return values


WAYS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "percent f": (lambda loss: "%.2f" % loss, "2.50"),
    "percent d": (lambda loss: "%d" % loss, "2"),
    "percent s": (lambda loss: "%s" % loss[0], "2.5"),
    "percent of several": (lambda loss: "%d: %.1f" % (3, loss), "3: 2.5"),
    "format": (lambda loss: "{:.2}".format(loss), "2.5"),  # noqa: UP032 - as scripts of the time write it
    "f-string": (lambda loss: f"{loss:>6.2f}", "  2.50"),
    "round": (lambda loss: round(loss, 1), 2.5),
    "round to a whole": (lambda loss: round(loss * 3), 8),
    "float": (float, 2.5),
    "int": (int, 2),
    "isnan": (math.isnan, False),
    "exp": (lambda loss: round(math.exp(loss), 3), 12.182),
    "bool": (bool, True),
    "comparison": (lambda loss: bool(loss < 3), True),
    "list.index": (lambda loss: [1.0, 2.5].index(loss), 1),
    "min": (lambda loss: float(min([loss, loss * 2])), 2.5),
    "sum": (lambda loss: "%.1f" % (sum([loss, loss]) / 2), "2.5"),
    "mean of list": (lambda loss: "%.1f" % np.mean([loss, loss]), "2.5"),
    "arithmetic": (lambda loss: "%.1f%%" % (loss * 100), "250.0%"),
    "function": (lambda loss: "%.1f" % np.sqrt(loss * 10), "5.0"),
    "array": (lambda loss: np.array(loss).ravel()[0], 2.5),
    "into an array": (lambda loss: np.full(2, loss.item())[1], 2.5),
    "json": (lambda loss: loss.tolist() == np.asarray(loss).tolist(), True),
}


@pytest.mark.parametrize("way", WAYS)
def test_one_number_of_any_rank_is_used_as_a_number(way: str) -> None:
    loss, _, nested, _ = fetch()
    use, expected = WAYS[way]
    assert loss.shape == (1,)
    assert use(loss) == expected
    assert nested.shape == (1, 1)
    assert use(nested[0]) == expected
    if way != "percent s":
        assert use(nested) == expected


def test_rows_of_a_column_print_as_numbers() -> None:
    _, column, _, _ = fetch()
    assert ["%d: %.2f" % (at, row) for at, row in enumerate(column)] == ["0: 0.00", "1: 4.00", "2: 8.00"]
    assert [f"{row:.1f}" for row in column + 1] == ["1.0", "5.0", "9.0"]
    assert float(column[1]) == column[1][0] == 4


def test_an_id_is_an_index() -> None:
    best = fluid.layers.argmax(fluid.layers.data("x", [4]), axis=1)
    exe = fluid.Executor(fluid.CPUPlace())
    (found,) = exe.run(feed={"x": np.array([[1, 9, 3, 4]], "float32")}, fetch_list=[best])
    assert ["a", "b", "c", "d"][found] == "b"
    assert "%x" % found == "1"


def test_what_holds_several_numbers_converts_to_none_and_says_so() -> None:
    _, column, _, matrix = fetch()
    for use in (float, int, round, "{:.2f}".format, "%.2f".__mod__):
        with pytest.raises(TypeError, match=r"shape \(3, 1\) is not a number"):
            use(column)
    assert type(matrix) is np.ndarray
    with pytest.raises(TypeError, match="cannot be an index"):
        ["a", "b", "c"][column[1]]


def test_only_what_may_need_it_is_more_than_a_plain_array() -> None:
    loss, column, _, _ = fetch()
    assert type(np.array(loss)) is type(column @ np.ones((1, 3))) is np.ndarray
    assert type(loss.sum()) is type(np.mean(column)) is type(column.max()) is np.float32
    assert repr(loss) == "array([2.5], dtype=float32)"
    assert str(loss) == f"{loss}" == "[2.5]"


def test_files_hold_plain_arrays() -> None:
    loss, column, _, _ = fetch()
    stored = io.BytesIO()
    np.save(stored, column)
    assert b"Fetched" not in stored.getvalue()
    assert pickle.dumps(loss) == pickle.dumps(np.array(loss))


def test_what_was_fetched_may_be_fed() -> None:
    _, column, _, _ = fetch()
    y = fluid.layers.data("y", [1])
    exe = fluid.Executor(fluid.CPUPlace())
    (doubled,) = exe.run(feed={"y": column}, fetch_list=[y * 2.0])
    assert doubled.tolist() == [[0], [8], [16]]


def test_tensors_give_rows_that_convert() -> None:
    loss, column, _, _ = fetch(return_numpy=False)
    assert float(loss) == np.array(loss)[0] == 2.5
    assert "%.1f" % column[1] == "4.0"


def test_a_weighted_mean_of_fetched_values_prints_as_a_number() -> None:
    average = fluid.average.WeightedAverage()
    for _ in range(2):
        average.add(fetch()[0], weight=3)
    assert "%.2f" % average.eval() == "2.50"


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16", "uint8"])
def test_a_dtype_equals_its_number_in_both_directions_and_as_a_key(dtype: str) -> None:
    number = {
        "float32": core.VarDesc.VarType.FP32,
        "int64": core.VarDesc.VarType.INT64,
        "bool": core.VarDesc.VarType.BOOL,
        "float16": core.VarDesc.VarType.FP16,
        "uint8": core.VarDesc.VarType.UINT8,
    }[dtype]
    x = fluid.layers.data("x", [4], dtype=dtype)
    assert x.dtype == number
    assert number == x.dtype
    assert (x.dtype != number, number != x.dtype) == (False, False)
    by_number: dict[Any, str] = {number: "found"}
    by_dtype: dict[Any, str] = {x.dtype: "found"}
    assert by_number[x.dtype] == by_dtype[number] == "found"
    assert x.dtype != core.VarDesc.VarType.FP64
    assert x.dtype != core.VarDesc.VarType.LOD_TENSOR
    assert number == int(number)


def test_a_number_stands_wherever_a_dtype_may() -> None:
    kinds = core.VarDesc.VarType
    layers = fluid.layers
    x, ids = layers.data("x", [4], dtype=kinds.FP32), layers.data("ids", [1], dtype=kinds.INT64)
    made = [
        layers.cast(x, kinds.INT64),
        layers.fill_constant([1], kinds.INT64, 3),
        layers.create_tensor(kinds.INT64),
        layers.create_global_var([1], 1, kinds.INT64),
        layers.zeros([2], kinds.INT64),
        layers.ones([2], kinds.INT64),
        layers.range(0, 3, 1, kinds.INT64),
        layers.fill_constant_batch_size_like(x, [-1, 1], kinds.INT64, 0),
        layers.sequence_mask(ids, 3, kinds.INT64),
        x.astype(kinds.INT64),
    ]
    assert [each.dtype for each in made] == [np.dtype("int64")] * len(made)
    assert np.zeros(1, kinds.FP16).dtype == "float16"
    assert layers.create_parameter([2], kinds.FP32).dtype == kinds.FP32
    assert layers.embedding(ids, [3, 2], dtype=kinds.FP32).dtype == kinds.FP32
    read: Any = layers.read_file(layers.py_reader(2, [(-1, 1)], [kinds.INT64]))
    assert read.dtype == kinds.INT64


def test_values_that_nothing_sets_are_none_also_when_several_are_fetched() -> None:
    x = fluid.layers.data("x", [2], lod_level=1)
    sums: list[Any] = [fluid.layers.sequence_pool(each, "sum") for each in (x, x)]
    unset = [name for each in sums for name in each.op.output("MaxIndex")]
    feed = {"x": fluid.create_lod_tensor(np.ones((3, 2), "float32"), [[1, 2]])}
    found = fluid.Executor().run(feed=feed, fetch_list=[*unset, sums[0]])
    assert found[:2] == [None, None]
    assert found[2].tolist() == [[1, 1], [2, 2]]
