# SPDX-License-Identifier: Apache-2.0
"""accuracy and auc: metrics of classifiers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from paddle.fluid.errors import answering
from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.shaping import topk
from paddle.fluid.layers.plain import layer
from paddle.fluid.program.variable import Variable
from paddle.graph import unique_name

__all__ = ["accuracy", "auc"]


def _best(given: Mapping[str, Any]) -> dict[str, Any]:
    values, places = topk(given["input"], given["k"])
    return {"input": values, "places": places}


accuracy = layer(
    "accuracy(input, label, k=1, correct=None, total=None)",
    """the top-k accuracy, float32 (1,): the fraction of rows whose label is among the k highest scores.

    Args:
        input: scores, (N, classes).
        label: (N, 1) int64.
        k: number of highest scores.
        correct: variable that receives the number of correct rows, int32 (1,).
        total: variable that receives the number of rows, int32 (1,)""",
    to="input=Out places=Indices k= correct=Correct total=Total",
    change=_best,
    fixed="Accuracy Correct Total",
    returns="Accuracy",
)


def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[Variable, Variable, list[Variable]]:
    """Return the areas under the ROC curve of all batches and of the last slide_steps batches, and the count variables.

    Args:
        input: probabilities, (N, 2).
        label: (N, 1), 0 or 1.
        curve: "ROC"; "PR" logs a warning and also gives the area under the ROC curve, as in the original.
        num_thresholds: number of buckets of the probability.
        topk: ignored.
        slide_steps: number of batches that the second area covers.
    """
    warn_of_curve(curve)
    helper = LayerHelper("auc")
    of_all, of_last = (unique_name.generate(f"{helper.name}.tmp") for _ in range(2))
    areas, stats = [], []
    for steps, name in ((slide_steps, of_last), (0, of_all)):
        counts = [
            helper.create_global_variable(
                None, (max(steps, 1), num_thresholds + 1), "int64", persistable=True
            )
            for _ in range(2)
        ]
        for count in counts:
            helper.set_variable_initializer(count, Constant(0.0, force_cpu=True))
        area, *_ = helper.apply_all(
            "auc",
            {"Predict": input, "Label": label, "StatPos": counts[0], "StatNeg": counts[1]},
            {"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps},
            {"AUC": name, "StatPosOut": counts[0], "StatNegOut": counts[1]},
            ["AUC"],
        )
        areas.append(area)
        stats.extend(counts)
    return areas[1], areas[0], stats


__getattr__ = answering(__name__, "paddle.fluid.layers")


def warn_of_curve(curve: str) -> None:
    """Warn that a curve other than ROC is not supported; the original did not compute it either."""
    if curve != "ROC":
        warnings.warn(
            f"curve={curve!r}: auc is the area under the ROC curve, as in the original", stacklevel=3
        )
