# SPDX-License-Identifier: Apache-2.0
"""What operators of all families compute, worked by hand, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.run_op import run_op

_IMAGE = np.arange(12.0).reshape(1, 1, 3, 4)


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
            {"X": np.arange(16.0).reshape(1, 4, 2, 2)},
            {"blocksize": 2},
            np.array([0.0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15]).reshape(1, 16, 1, 1),
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
            "with 2 channels.*got Input",
        ),
        (
            "pool3d",
            {"X": np.zeros((1, 1, 2, 2, 2))},
            {"pooling_type": "avg", "ksize": [3, 1, 1]},
            "smaller than the extent",
        ),
        ("pad2d", {"X": _IMAGE}, {"paddings": [1, 0, 0], "mode": "edge"}, "top, bottom, left, right"),
        ("bilinear_interp", {"X": _IMAGE}, {}, "must be positive"),
        (
            "space_to_depth",
            {"X": _IMAGE},
            {"blocksize": 2},
            r"H \* blocksize.*with blocksize=2, got X \(.* 3, ",
        ),
        (
            "space_to_depth",
            {"X": np.zeros((1, 6, 2, 2))},
            {"blocksize": 2},
            r"C \* blocksize\*\*2, .*, got X \(1, 6, 2, 2\)",
        ),
        ("nearest_interp", {"X": _IMAGE}, {"scale": 0.3}, "must be positive, got 0 and 1"),
        ("reduce_all", {"X": _IMAGE}, {}, "comparison"),
        ("unstack", {"X": _IMAGE}, {"axis": 2, "num": 2}, "expected 3"),
        (
            "warpctc",
            {
                "Logits": LoDArray(np.zeros((2, 3)), offsets_of([[2]])),
                "Label": LoDArray(np.array([[3]]), offsets_of([[1]])),
            },
            {},
            r"row 0 of Label: label 3 is not in \[0, 3\)",
        ),
    ],
)
def test_what_does_not_fit_an_operator_is_refused(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], text: str
) -> None:
    with pytest.raises((OpError, ExecutionError), match=text):
        run_op(op_type, inputs, attrs)
