# SPDX-License-Identifier: Apache-2.0
"""Values of one row beside values of several: refused where numpy would repeat the one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.errors import PaddleError
from paddle.fluid import layers

# Losses and sums that add up row by row: numpy would repeat the one row beside the four.
_PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, y: layers.sums([x, y]),
    "square_error_cost": lambda x, y: layers.square_error_cost(x, y),
    "smooth_l1": lambda x, y: layers.smooth_l1(x, y),
    "huber_loss": lambda x, y: layers.huber_loss(x, y, 1.0),
    "log_loss": lambda x, y: layers.log_loss(x, y),
    "sigmoid_cross_entropy": lambda x, y: layers.sigmoid_cross_entropy_with_logits(x, y),
    "kldiv_loss": lambda x, y: layers.kldiv_loss(x, y, "none"),
    "soft labels": lambda x, y: layers.softmax_with_cross_entropy(x, y, soft_label=True),
    "rank_loss": lambda x, y: layers.rank_loss(y, x, x),
    "margin_rank_loss": lambda x, y: layers.margin_rank_loss(y, x, x),
    "hsigmoid": lambda x, y: layers.hsigmoid(x, layers.cast(y, "int64"), 4),
    "bpr_loss": lambda x, y: layers.bpr_loss(layers.fc(x, 3), layers.cast(y, "int64")),
    "auc": lambda x, y: layers.auc(layers.concat([x, x], axis=1), layers.cast(y, "int64"))[0],
    "accuracy": lambda x, y: layers.accuracy(x, layers.cast(y, "int64"), k=1),
}


@pytest.mark.parametrize("rows", [(4, 1), (1, 4)])
@pytest.mark.parametrize("name", list(_PAIRS))
def test_one_row_beside_four_is_refused(name: str, rows: tuple[int, int]) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        out = _PAIRS[name](layers.data("x", [1]), layers.data("y", [1]))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        exe.run(main, {each: np.full((4, 1), 0.5, "float32") for each in "xy"}, [out])
        fed = {each: np.full((count, 1), 0.5, "float32") for each, count in zip("xy", rows, strict=True)}
        with pytest.raises(PaddleError, match="failed: "):
            exe.run(main, fed, [out])
