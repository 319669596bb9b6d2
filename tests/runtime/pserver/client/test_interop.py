# SPDX-License-Identifier: Apache-2.0
"""Arrays of any library: looked at where they lie, changed in place, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.pserver.client.interop import host_array, row_gradient, target
from tests.runtime.pserver.other_tensors import Exposed, FrozenTensor, GpuTensor, OldTensor, Tensor

READABLE = [lambda a: a, Tensor, OldTensor, FrozenTensor, Exposed, lambda a: Tensor(a, requires_grad=True)]
WRITEABLE = [lambda a: a, Tensor, OldTensor, Exposed, GpuTensor, lambda a: Tensor(a, requires_grad=True)]


def numbers() -> np.ndarray:
    return np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("wrap", READABLE)
def test_an_array_in_the_hosts_memory_is_not_copied(wrap: Any) -> None:
    array = numbers()
    seen = host_array(wrap(array), "value")
    assert np.shares_memory(seen, array)
    assert (seen.shape, seen.dtype) == (array.shape, array.dtype)


def test_an_array_elsewhere_is_fetched() -> None:
    assert np.array_equal(host_array(GpuTensor(numbers()), "value"), numbers())


@pytest.mark.parametrize("wrap", WRITEABLE)
@pytest.mark.parametrize("contiguous", [True, False])
def test_values_arrive_in_the_array_itself(wrap: Any, contiguous: bool) -> None:
    array = numbers() if contiguous else numbers().T.copy().T
    place = target(wrap(array), "out")
    assert place.host.flags.c_contiguous
    place.host[...] = -numbers()
    place.finish()
    assert np.array_equal(array, -numbers())


def frozen() -> np.ndarray:
    array = numbers()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("array", [FrozenTensor(numbers()), frozen()])
def test_an_array_that_cannot_be_changed_is_refused_for_values(array: Any) -> None:
    with pytest.raises(ConfigError, match="out array of tensor w: expected an array that can be changed"):
        target(array, "out array of tensor w")


@pytest.mark.parametrize("thing", [[1.0, 2.0], 3.0, "w", None])
def test_what_is_no_array_is_refused_by_name(thing: object) -> None:
    with pytest.raises(ConfigError, match=r"gradient of tensor w: expected .* got"):
        host_array(thing, "gradient of tensor w")


class _Bfloat(Tensor):
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("unsupported dtype bfloat16")


def test_a_dtype_that_numpy_does_not_have_is_refused_with_the_reason() -> None:
    with pytest.raises(
        ConfigError, match=r"w: numpy cannot read a _Bfloat \(other.float32\): unsupported dtype"
    ):
        host_array(_Bfloat(numbers()), "w")


def test_row_gradients_are_put_in_order_and_repeated_rows_added() -> None:
    ids = np.array([[7, 2], [7, 0]], np.int32)
    rows = np.array([[[1, 1], [2, 2]], [[10, 20], [4, 4]]], np.float32)
    gradient = row_gradient(Tensor(ids), Tensor(rows), "gradient of tensor emb")
    assert gradient.rows.tolist() == [0, 2, 7]
    assert gradient.rows.dtype == np.int64
    assert gradient.values.tolist() == [[4, 4], [2, 2], [11, 21]]


def test_many_repeated_rows_equal_a_sum_in_double_precision() -> None:
    rng = np.random.default_rng(4)
    ids = rng.integers(-50, 50, 3000)
    rows = rng.standard_normal((3000, 5)).astype(np.float32)
    gradient = row_gradient(ids, rows, "emb")
    expected = np.zeros((100, 5))
    np.add.at(expected, ids + 50, rows)
    np.testing.assert_allclose(gradient.values, expected[gradient.rows + 50], rtol=1e-5, atol=1e-5)
    assert (np.diff(gradient.rows) > 0).all()


def test_no_rows_are_a_gradient_too() -> None:
    gradient = row_gradient(np.zeros(0, np.int64), np.zeros((0, 3), np.float32), "emb")
    assert gradient.values.shape == (0, 3)


@pytest.mark.parametrize(
    ("ids", "rows", "why"),
    [
        (np.zeros(2), np.zeros((2, 3), np.float32), "row ids of emb: expected int64 or int32, got float64"),
        (
            np.zeros(2, np.int64),
            np.zeros((3, 3), np.float32),
            r"emb: expected \(2, width\) float32 .* \(3, 3\)",
        ),
        (np.zeros(2, np.int64), np.zeros((2, 3)), r"got \(2, 3\) float64"),
        (np.zeros((), np.int64), np.zeros((), np.float32), r"expected \(, width\)"),
    ],
)
def test_rows_that_do_not_fit_their_ids_are_refused(ids: Any, rows: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        row_gradient(ids, rows, "emb")
