# SPDX-License-Identifier: Apache-2.0
"""Values in two parts by a mask and together again: rows, and sequences of any level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph import Executor, Program, Scope, append_backward
from paddle.graph.errors import ExecutionError
from paddle.ops.base.lod import LoDArray, lod_of, offsets_of, plain
from tests.runtime.ops.run_op import run_op

_MASK = np.array([[True], [False], [True]])
_ROWS = np.arange(14.0).reshape(7, 2)


def levels(value: Any) -> list[list[int]]:
    return value.lengths() if lod_of(value) else []


@pytest.mark.parametrize(
    ("lengths", "level", "true", "false"),
    [
        ([], 0, ([0, 2], []), ([1], [])),
        ([[3, 0, 4]], 0, ([0, 1, 2, 3, 4, 5, 6], [[3, 4]]), ([], [[0]])),
        ([[2, 3, 2]], 0, ([0, 1, 5, 6], [[2, 2]]), ([2, 3, 4], [[3]])),
        ([[1, 2, 1], [2, 1, 1, 3]], 0, ([0, 1, 4, 5, 6], [[1, 1], [2, 3]]), ([2, 3], [[2], [1, 1]])),
        ([[1, 2], [2, 1, 4]], 1, ([0, 1, 3, 4, 5, 6], [[2, 4]]), ([2], [[1]])),
    ],
)
def test_members_of_a_level_part_and_meet_again(lengths: Any, level: int, true: Any, false: Any) -> None:
    data = _ROWS if lengths else _ROWS[:3]
    x = LoDArray(data, offsets_of(lengths)) if lengths else data
    parts = run_op("split_lod_tensor", {"X": x, "Mask": _MASK}, {"level": level})
    for part, (rows, found) in zip(parts, (true, false), strict=True):
        np.testing.assert_array_equal(plain(part), data[rows])
        assert levels(part) == found
    for op in ("merge_lod_tensor", "merge_lod_tensor_infer"):
        inputs = {"X": x, "Mask": _MASK, "InTrue": parts[0], "InFalse": parts[1]}
        (whole,) = run_op(op, inputs, {"level": level})
        np.testing.assert_array_equal(plain(whole), data)
        assert levels(whole) == lengths


def test_a_mask_of_another_size_is_refused() -> None:
    x = LoDArray(_ROWS, offsets_of([[3, 4]]))
    with pytest.raises(
        ExecutionError, match="Mask has 3 rows, but the values have 2 sequences in level 0 and 7 rows"
    ):
        run_op("split_lod_tensor", {"X": x, "Mask": _MASK})
    with pytest.raises(ExecutionError, match=r"Mask .*2 rows .*InTrue and 1 .*InFalse.* 1 and 2"):
        run_op("merge_lod_tensor", {"X": _ROWS, "Mask": _MASK, "InTrue": _ROWS[:1], "InFalse": _ROWS[:2]})


def test_gradients_take_the_same_ways_back() -> None:
    program = Program()
    block = program.global_block()
    feed: dict[str, Any] = {
        "x": LoDArray(_ROWS, offsets_of([[2, 3, 2]])),
        "mask": _MASK,
        "w": np.arange(14.0).reshape(7, 2) ** 2,
    }
    for name, value in feed.items():
        block.create_var(
            name, value.shape, plain(value).dtype, stop_gradient=name != "x", lod_level=len(lod_of(value))
        )
    block.append_op("split_lod_tensor", {"X": "x", "Mask": "mask"}, {"OutTrue": "t", "OutFalse": "f"})
    block.append_op("scale", {"X": "t"}, {"Out": "scaled"}, {"scale": 3.0})
    names = {"X": "x", "Mask": "mask", "InTrue": "scaled", "InFalse": "f"}
    block.append_op("merge_lod_tensor", names, {"Out": "whole"})
    block.append_op("elementwise_mul", {"X": "whole", "Y": "w"}, {"Out": "weighed"})
    block.append_op("reduce_sum", {"X": "weighed"}, {"Out": "loss"}, {"reduce_all": True})
    append_backward(block.var("loss"), ["x"])
    (dx,) = Executor().run(program, feed, ["x@GRAD"], Scope(), step=0)
    factors = np.array([3, 3, 1, 1, 1, 3, 3])[:, None]
    np.testing.assert_array_equal(dx, feed["w"] * factors)
