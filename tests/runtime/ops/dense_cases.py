# SPDX-License-Identifier: Apache-2.0
"""Cases of norms over rows and groups, running sums and ranking losses."""

from __future__ import annotations

from tests.runtime.ops.gradient_check import Case, Values


def _ids(*shape: int, high: int) -> Values:
    return Values(shape, "ids", high)


def _norms() -> list[Case]:
    return [
        Case("layer_norm", {"X": (3, 4), "Scale": (4,), "Bias": (4,)}, scored=("Y",)),
        Case("layer_norm", {"X": (2, 3, 2), "Scale": (2,)}, {"begin_norm_axis": 2}, scored=("Y",)),
        Case("layer_norm", {"X": (2, 3, 2)}, {"epsilon": 0.1}, scored=("Y",)),
        Case("layer_norm", {"X": (0, 4), "Scale": (4,), "Bias": (4,)}, scored=("Y",)),
        Case("group_norm", {"X": (2, 4, 2, 2), "Scale": (4,), "Bias": (4,)}, {"groups": 2}, scored=("Y",)),
        Case("group_norm", {"X": (2, 6, 3)}, {"groups": 3}, scored=("Y",)),
        Case("group_norm", {"X": (0, 4, 2, 2), "Scale": (4,), "Bias": (4,)}, {"groups": 4}, scored=("Y",)),
    ]


def _orders() -> list[Case]:
    return [
        Case("cumsum", {"X": (3, 4)}),
        Case("cumsum", {"X": (3, 4)}, {"axis": 0, "exclusive": True}),
        Case("cumsum", {"X": (3, 4)}, {"reverse": True}),
        Case("cumsum", {"X": (0, 4)}, {"exclusive": True, "reverse": True}),
        Case("reverse", {"X": (2, 3, 2)}, {"axis": [0, 2]}),
        Case("reverse", {"X": (0, 2)}, {"axis": [0]}),
    ]


def _losses() -> list[Case]:
    margin = {"Label": Values((3, 1), "unit"), "X1": (3, 1), "X2": (3, 1)}
    return [
        Case("margin_rank_loss", margin, {"margin": 0.1}, fixed=("Label",)),
        Case("bpr_loss", {"X": (4, 5), "Label": _ids(4, 1, high=5)}),
        Case("bpr_loss", {"X": (0, 5), "Label": _ids(0, 1, high=5)}),
        Case("squared_l2_distance", {"X": (3, 4), "Y": (3, 4)}),
        Case("squared_l2_distance", {"X": (3, 4), "Y": (1, 4)}),
        Case("squared_l2_distance", {"X": (0, 4), "Y": (0, 4)}),
        Case("label_smooth", {"X": Values((3, 4), "unit")}, {"epsilon": 0.1}),
        Case(
            "label_smooth",
            {"X": Values((3, 4), "unit"), "PriorDist": Values((1, 4), "probabilities")},
            {"epsilon": 0.2},
            fixed=("PriorDist",),
        ),
    ]


def _choices() -> list[Case]:
    windows: dict[str, object] = {"kernels": [2, 2], "strides": [1, 2], "paddings": [1, 0, 0, 1]}
    return [
        Case("multiplex", {"Ids": _ids(4, 1, high=3), "X": [(4, 2), (4, 2), (4, 2)]}),
        Case("multiplex", {"Ids": _ids(0, 1, high=2), "X": [(0, 2), (0, 2)]}),
        Case("im2sequence", {"X": (2, 3, 4, 5)}, {"kernels": [2, 3]}),
        Case("im2sequence", {"X": (2, 1, 3, 4)}, windows),
        Case("im2sequence", {"X": (0, 1, 3, 4)}, windows),
    ]


DENSE_CASES: list[Case] = [*_choices(), *_norms(), *_orders(), *_losses()]
