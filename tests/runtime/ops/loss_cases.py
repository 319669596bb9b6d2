# SPDX-License-Identifier: Apache-2.0
"""Cases of losses."""

from __future__ import annotations

from tests.runtime.ops.gradient_check import Case, Values


def _ids(*shape: int, high: int) -> Values:
    return Values(shape, "ids", high)


def _losses() -> list[Case]:
    pair = {"X": (3, 4), "Y": (3, 4)}
    soft = {"Label": Values((3, 4), "probabilities")}
    return [
        Case("cross_entropy", {"X": Values((3, 4), "probabilities"), "Label": _ids(3, 1, high=4)}),
        Case("cross_entropy", {"X": Values((2, 3, 4), "probabilities"), "Label": _ids(2, 3, 1, high=4)}),
        Case(
            "cross_entropy",
            {"X": Values((5, 2), "probabilities"), "Label": _ids(5, 1, high=2)},
            {"ignore_index": 1},
        ),
        Case(
            "cross_entropy",
            {"X": Values((3, 4), "probabilities"), **soft},
            {"soft_label": True},
            fixed=("Label",),
        ),
        Case("cross_entropy", {"X": Values((0, 4), "probabilities"), "Label": _ids(0, 1, high=4)}),
        Case("softmax_with_cross_entropy", {"Logits": (3, 4), "Label": _ids(3, 1, high=4)}),
        Case("softmax_with_cross_entropy", {"Logits": (2, 3, 4), "Label": _ids(2, 3, 1, high=4)}),
        Case(
            "softmax_with_cross_entropy", {"Logits": (5, 2), "Label": _ids(5, 1, high=2)}, {"ignore_index": 0}
        ),
        Case(
            "softmax_with_cross_entropy", {"Logits": (3, 4), **soft}, {"soft_label": True}, fixed=("Label",)
        ),
        Case("softmax_with_cross_entropy", {"Logits": (0, 4), "Label": _ids(0, 1, high=4)}),
        Case(
            "sigmoid_cross_entropy_with_logits",
            {"X": (3, 4), "Label": Values((3, 4), "unit")},
            fixed=("Label",),
        ),
        Case(
            "sigmoid_cross_entropy_with_logits",
            {"X": (3, 4), "Label": Values((3, 4), "unit")},
            {"normalize": True},
            fixed=("Label",),
        ),
        Case("square_error_cost", pair),
        Case("square_error_cost", {"X": (0, 4), "Y": (0, 4)}),
        Case("huber_loss", pair, {"delta": 0.5}),
        Case("huber_loss", {"X": (4, 1), "Y": (4, 1)}, {"delta": 2.0}),
        Case("hinge_loss", {"Logits": (4, 1), "Labels": Values((4, 1), "unit")}, fixed=("Labels",)),
        Case(
            "log_loss",
            {"Predicted": Values((4, 1), "unit"), "Labels": Values((4, 1), "unit")},
            {"epsilon": 1e-4},
            fixed=("Labels",),
        ),
        Case(
            "rank_loss",
            {"Label": Values((4, 1), "unit"), "Left": (4, 1), "Right": (4, 1)},
            fixed=("Label",),
        ),
        Case("smooth_l1_loss", pair, {"sigma": 1.0}),
        Case(
            "smooth_l1_loss",
            {**pair, "InsideWeight": Values((3, 4), "unit"), "OutsideWeight": Values((3, 4), "unit")},
            {"sigma": 2.0},
            fixed=("InsideWeight", "OutsideWeight"),
        ),
        Case("smooth_l1_loss", {"X": (2, 3, 2), "Y": (2, 3, 2)}),
    ]


LOSS_CASES: list[Case] = _losses()
