# SPDX-License-Identifier: Apache-2.0
"""What operators on sequences compute, against a loop over the sequences or worked by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from paddle.graph import Executor, Program
from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.run_op import run_op

_RNG = np.random.default_rng(5)


def _batch(*lengths: int, width: int = 2) -> LoDArray:
    return LoDArray(_RNG.standard_normal((sum(lengths), width)), offsets_of([lengths]))


def _ids(values: list[int], *lengths: int) -> LoDArray:
    return LoDArray(np.array(values, np.int64)[:, None], offsets_of([lengths]))


def _each(x: LoDArray) -> list[Any]:
    offsets = x.lod[-1]
    return [x.data[a:b] for a, b in itertools.pairwise(offsets)]


@pytest.mark.parametrize(
    ("pooltype", "function"),
    [
        ("SUM", lambda rows: rows.sum(axis=0)),
        ("AVERAGE", lambda rows: rows.mean(axis=0)),
        ("SQRT", lambda rows: rows.sum(axis=0) / np.sqrt(len(rows))),
        ("MAX", lambda rows: rows.max(axis=0)),
        ("FIRST", lambda rows: rows[0]),
        ("LAST", lambda rows: rows[-1]),
    ],
)
def test_a_pool_makes_one_row_of_each_sequence(pooltype: str, function: Callable[[Any], Any]) -> None:
    x = _batch(2, 0, 3, 1)
    out, _ = run_op("sequence_pool", {"X": x}, {"pooltype": pooltype, "pad_value": 7.0})
    expected = [function(rows) if len(rows) else np.full(2, 7.0) for rows in _each(x)]
    np.testing.assert_allclose(out, expected)


def test_a_pool_keeps_the_levels_above_the_last() -> None:
    x = LoDArray(np.ones((6, 1)), offsets_of([[2, 1], [1, 2, 3]]))
    out, _ = run_op("sequence_pool", {"X": x}, {"pooltype": "SUM"})
    assert out.lengths() == [[2, 1]]
    assert out.data[:, 0].tolist() == [1, 2, 3]


def test_the_greatest_row_of_a_pool_is_named() -> None:
    x = LoDArray(np.array([[1.0, 5], [3, 2], [4, 9], [4, 8]]), offsets_of([[2, 2, 0]]))
    _, index = run_op("sequence_pool", {"X": x}, {"pooltype": "MAX"})
    assert index[:2].tolist() == [[1, 0], [2, 2]]


def test_a_softmax_adds_up_to_one_in_each_sequence() -> None:
    x = LoDArray(np.array([1.0, 1, 0, 700, 0, 0]), offsets_of([[2, 0, 1, 3]]))
    (out,) = run_op("sequence_softmax", {"X": x})
    np.testing.assert_allclose([rows.sum() for rows in _each(out)], [1, 0, 1, 1])
    np.testing.assert_allclose(out.data[:3], [0.5, 0.5, 1])


def test_expansion_repeats_sequences_as_often_as_the_level_says() -> None:
    x = LoDArray(np.array([[1.0], [2], [3], [4]]), offsets_of([[2, 2]]))
    y = LoDArray(np.ones((8, 1)), offsets_of([[2, 2], [3, 3, 1, 1]]))
    (out,) = run_op("sequence_expand", {"X": x, "Y": y}, {"ref_level": 0})
    assert out.data[:, 0].tolist() == [1, 2, 1, 2, 3, 4, 3, 4]
    assert out.lengths() == [[2, 2, 2, 2]]


def test_expansion_of_plain_rows_takes_the_lod_of_what_it_follows() -> None:
    (out,) = run_op("sequence_expand", {"X": np.array([[1.0], [2], [3]]), "Y": _batch(2, 0, 3)})
    assert out.data[:, 0].tolist() == [1, 1, 3, 3, 3]
    assert out.lengths() == [[2, 0, 3]]


def test_sequences_are_joined_pairwise() -> None:
    a, b = _batch(1, 2, 0), _batch(2, 0, 0)
    (out,) = run_op("sequence_concat", {"X": [a, b]})
    assert out.lengths() == [[3, 2, 0]]
    np.testing.assert_array_equal(out.data, np.concatenate([a.data[:1], b.data, a.data[1:]]))


@pytest.mark.parametrize(("start", "length"), [(-1, 3), (0, 2), (-2, 2), (1, 1)])
def test_a_context_is_zero_beyond_its_sequence(start: int, length: int) -> None:
    x, filters = _batch(3, 0, 1, 2), _RNG.standard_normal((2 * length, 4))
    (out,) = run_op(
        "sequence_conv", {"X": x, "Filter": filters}, {"contextStart": start, "contextLength": length}
    )
    expected = []
    for rows in _each(x):
        for t in range(len(rows)):
            places = range(t + start, t + start + length)
            window = [rows[p] if 0 <= p < len(rows) else np.zeros(2) for p in places]
            expected.append(np.concatenate(window) @ filters)
    np.testing.assert_allclose(out.data, expected)


def test_trained_padding_lies_before_and_behind_each_sequence() -> None:
    x = LoDArray(np.array([[1.0], [2]]), offsets_of([[1, 1]]))
    padding, filters = np.array([[10.0], [20], [30]]), np.eye(4)
    attrs = {"contextStart": -2, "contextLength": 4, "paddingTrainable": True}
    (out,) = run_op("sequence_conv", {"X": x, "PaddingData": padding, "Filter": filters}, attrs)
    assert out.data.tolist() == [[10, 20, 1, 30], [10, 20, 2, 30]]


def test_rows_look_ahead_within_their_sequence() -> None:
    x, filters = _batch(3, 1), _RNG.standard_normal((2, 2))
    (out,) = run_op("row_conv", {"X": x, "Filter": filters})
    expected = x.data * filters[0]
    expected[[0, 1]] += x.data[[1, 2]] * filters[1]
    np.testing.assert_allclose(out.data, expected)


def test_sequences_turn_round() -> None:
    x = LoDArray(np.arange(5.0), offsets_of([[3, 0, 2]]))
    assert run_op("sequence_reverse", {"X": x})[0].data.tolist() == [2, 1, 0, 4, 3]


def test_slices_have_their_own_start_and_length() -> None:
    x = LoDArray(np.arange(6.0)[:, None], offsets_of([[3, 3]]))
    inputs = {"X": x, "Offset": np.array([[1], [0]]), "Length": np.array([[2], [1]])}
    (out,) = run_op("sequence_slice", inputs)
    assert (out.data[:, 0].tolist(), out.lengths()) == ([1, 2, 3], [[2, 1]])


def test_a_slice_that_reaches_out_of_its_sequence_is_refused() -> None:
    inputs = {"X": _batch(3, 3), "Offset": np.array([[1], [2]]), "Length": np.array([[2], [2]])}
    with pytest.raises(ExecutionError, match=r"sequence 1 has 3 rows, .*2 rows starting at row 2"):
        run_op("sequence_slice", inputs)


def test_tokens_are_erased() -> None:
    (out,) = run_op("sequence_erase", {"X": _ids([2, 2, 6, 1, 3, 9, 6], 4, 0, 3)}, {"tokens": [2, 3]})
    assert (out.data[:, 0].tolist(), out.lengths()) == ([6, 1, 9, 6], [[2, 0, 2]])


def test_windows_end_with_the_pad_value() -> None:
    (out,) = run_op("sequence_enumerate", {"X": _ids([1, 2, 3, 4, 5], 3, 2)}, {"win_size": 2, "pad_value": 9})
    assert out.data.tolist() == [[1, 2], [2, 3], [3, 9], [4, 5], [5, 9]]


def test_what_is_padded_comes_back_unpadded() -> None:
    x = _batch(2, 0, 3)
    box, length = run_op("sequence_pad", {"X": x, "PadValue": np.array([-1.0])}, {"padded_length": 4})
    assert (box.shape, length.tolist()) == ((3, 4, 2), [[2], [0], [3]])
    assert (box[0, 2:] == -1).all()
    (back,) = run_op("sequence_unpad", {"X": box, "Length": length})
    assert back.lengths() == [[2, 0, 3]]
    np.testing.assert_array_equal(back.data, x.data)


def test_a_box_shorter_than_a_sequence_is_refused() -> None:
    with pytest.raises(ExecutionError, match="padded_length 2 is less than 3"):
        run_op("sequence_pad", {"X": _batch(3), "PadValue": np.array([0.0])}, {"padded_length": 2})


@pytest.mark.parametrize(("maxlen", "width"), [(-1, 3), (5, 5)])
def test_a_mask_has_as_many_ones_as_the_length(maxlen: int, width: int) -> None:
    (mask,) = run_op("sequence_mask", {"X": np.array([1, 0, 3])}, {"maxlen": maxlen, "out_dtype": "float32"})
    assert (mask.shape, mask.sum(axis=1).tolist()) == ((3, width), [1, 0, 3])
    assert mask[0].tolist()[:2] == [1, 0]


def test_numbers_stay_with_their_sequence_when_rows_change() -> None:
    x = LoDArray(np.arange(8.0).reshape(4, 2), offsets_of([[1, 3]]))
    (out,) = run_op("sequence_reshape", {"X": x}, {"new_dim": 1})
    assert (out.data.shape, out.lengths()) == ((8, 1), [[2, 6]])


def test_lod_is_reset_to_offsets_another_value_or_its_numbers() -> None:
    x = np.ones((4, 1))
    for inputs, attrs in (
        ({"X": x}, {"target_lod": [0, 1, 4]}),
        ({"X": x, "Y": _batch(1, 3)}, {}),
        ({"X": x, "Y": np.array([0, 1, 4], np.int32)}, {}),
    ):
        assert run_op("lod_reset", inputs, attrs)[0].lengths() == [[1, 3]]


def test_updates_go_to_the_row_of_their_sequence() -> None:
    inputs = {
        "X": np.zeros((2, 3)),
        "Ids": _ids([0, 2, 2], 1, 2),
        "Updates": LoDArray(np.ones((3, 1)), offsets_of([[1, 2]])),
    }
    assert run_op("sequence_scatter", inputs)[0].tolist() == [[1, 0, 0], [0, 0, 2]]


def test_an_input_without_sequences_is_refused() -> None:
    with pytest.raises(ExecutionError, match="has no LoD"):
        run_op("sequence_reverse", {"X": np.ones((2, 2))})


@pytest.mark.parametrize("lod", [[[0, 2, 1]], [[1, 3]], [[0, 2]], [[0, 1], [0, 2, 3]]])
def test_offsets_that_do_not_fit_the_rows_are_refused(lod: list[list[int]]) -> None:
    with pytest.raises(InputError, match="must be 0 or more and add up to"):
        LoDArray(np.ones((3, 1)), tuple(np.array(level) for level in lod))


def test_plain_operators_share_the_lod_of_their_first_input_that_has_one() -> None:
    program = Program()
    block = program.global_block()
    block.create_var("x", (-1, 2), lod_level=1)
    block.create_var("w", (2, 3))
    block.append_op("mul", {"X": "x", "Y": "w"}, {"Out": "h"})
    block.append_op("tanh", {"X": "h"}, {"Out": "y"})
    block.append_op("reduce_sum", {"X": "y"}, {"Out": "total"}, {"reduce_all": True})
    x = LoDArray(np.ones((3, 2), np.float32), offsets_of([[1, 2]]))
    y, total = Executor().run(program, {"x": x, "w": np.ones((2, 3), np.float32)}, ["y", "total"])
    assert y.lengths() == [[1, 2]]
    assert isinstance(total, np.ndarray)


def test_the_same_program_runs_with_and_without_lod() -> None:
    program = Program()
    block = program.global_block()
    block.create_var("x", (-1, 2))
    block.append_op("tanh", {"X": "x"}, {"Out": "y"})
    x, executor = np.ones((3, 2), np.float32), Executor()
    assert isinstance(executor.run(program, {"x": x}, ["y"])[0], np.ndarray)
    assert executor.run(program, {"x": LoDArray(x, offsets_of([[3]]))}, ["y"])[0].lengths() == [[3]]


def test_windows_of_an_image_are_rows_of_its_sequence() -> None:
    x = np.arange(12.0).reshape(1, 1, 3, 4)
    (out,) = run_op("im2sequence", {"X": x}, {"kernels": [2, 2], "strides": [1, 2]})
    assert out.data.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [4, 5, 8, 9], [6, 7, 10, 11]]
    assert out.lengths() == [[4]]


def test_windows_of_what_only_fills_an_image_up_are_left_out() -> None:
    x = np.random.default_rng(4).standard_normal((3, 2, 4, 5))
    real = np.array([[8, 10], [5, 7], [4, 3]])  # of images that two steps of 2 made half as large
    attrs = {"kernels": [2, 3], "strides": [1, 2], "paddings": [1, 0, 0, 1], "out_stride": [2, 2]}
    (out,) = run_op("im2sequence", {"X": x, "Y": real}, attrs)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 1)))
    expected = []
    for image, (height, width) in zip(padded, -(-real // 2), strict=True):
        for top in range(height + 1 - 2 + 1):
            for left in range(0, width + 1 - 3 + 1, 2):
                expected.append(image[:, top : top + 2, left : left + 3].reshape(-1))
    np.testing.assert_array_equal(out.data, expected)
    assert out.lengths() == [[8, 6, 2]]


@pytest.mark.parametrize("real", [[[9, 10]] * 2, [[0, 3]] * 2, [[4, 4]]])
def test_images_larger_than_their_batch_or_too_few_are_refused(real: list[list[int]]) -> None:
    attrs = {"kernels": [2, 2], "out_stride": [2, 2]}
    with pytest.raises(ExecutionError, match=r"expected 2 .*\(4, 5\)"):
        run_op("im2sequence", {"X": np.zeros((2, 1, 4, 5)), "Y": np.array(real)}, attrs)
