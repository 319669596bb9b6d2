# SPDX-License-Identifier: Apache-2.0
"""Cases of operators by family: norms, running sums, losses, sampled losses, recurrent layers."""

from __future__ import annotations

from tests.runtime.ops.gradient_check import Case, Values

_LENGTHS = ((2, 0, 3, 1),)


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
        Case(
            "im2sequence",
            {"X": (2, 2, 4, 5), "Y": Values((2, 2), "ids", given=(3, 9, 8, 4))},
            {**windows, "out_stride": [2, 2]},
        ),
    ]


DENSE_CASES: list[Case] = [*_choices(), *_norms(), *_orders(), *_losses()]


def _losses_loss_cases() -> list[Case]:
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
        Case("softmax_with_cross_entropy", {"Logits": (4, 3), "Label": _ids(1, 3, high=4)}, {"axis": 0}),
        Case(
            "softmax_with_cross_entropy",
            {"Logits": (2, 4, 3), "Label": _ids(2, 1, 3, high=2)},
            {"axis": -2, "ignore_index": 1},
        ),
        Case(
            "softmax_with_cross_entropy",
            {"Logits": (2, 4, 3), "Label": Values((2, 4, 3), "unit")},
            {"axis": 1, "soft_label": True},
            fixed=("Label",),
        ),
        Case(
            "softmax_with_cross_entropy", {"Logits": (0, 4, 2), "Label": _ids(0, 1, 2, high=4)}, {"axis": 1}
        ),
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


LOSS_CASES: list[Case] = _losses_loss_cases()


def _rows(width: int, lengths: tuple[tuple[int, ...], ...] = _LENGTHS) -> Values:
    return Values((sum(lengths[-1]), width), lengths=lengths)


def _lstms() -> list[Case]:
    weights = {"Weight": (2, 8), "Bias": (1, 14)}
    first = {"H0": (4, 2), "C0": (4, 2)}
    projected = {"Weight": (3, 8), "ProjWeight": (2, 3), "Bias": (1, 14)}
    other = {"gate_activation": "tanh", "cell_activation": "identity", "candidate_activation": "sigmoid"}
    return [
        Case("lstm", {"Input": _rows(8), **weights}),
        Case("lstm", {"Input": _rows(8), **weights, **first}, {"is_reverse": True}),
        Case("lstm", {"Input": _rows(8), **weights, "Bias": (1, 8)}, {"use_peepholes": False}),
        Case("lstm", {"Input": _rows(8), **weights, **first}, other),
        Case("lstm", {"Input": _rows(8, ((2, 1), (1, 2, 2))), **weights}),
        Case("lstm", {"Input": _rows(8, ((0, 0),)), **weights, "H0": (2, 2)}),
        Case("lstm", {"Input": _rows(8), **weights}, scored=("Hidden",)),
        Case("lstmp", {"Input": _rows(8), **projected}),
        Case(
            "lstmp",
            {"Input": _rows(8), **projected, "H0": (4, 3), "C0": (4, 2), "Bias": (1, 8)},
            {"use_peepholes": False, "is_reverse": True, "proj_activation": "identity"},
        ),
        Case("lstmp", {"Input": _rows(8, ((0,),)), **projected}),
        Case("lstmp", {"Input": _rows(8), **projected}, {"cell_clip": 0.3, "proj_clip": 0.2}),
        Case(
            "lstmp",
            {"Input": _rows(8), **projected, "H0": (4, 3), "C0": (4, 2)},
            {"proj_clip": 0.1, "proj_activation": "identity", "is_reverse": True},
        ),
        Case("lstm_unit", {"X": (3, 8), "C_prev": (3, 2)}, {"forget_bias": 0.5}),
        Case("lstm_unit", {"X": (0, 8), "C_prev": (0, 2)}),
    ]


def _grus() -> list[Case]:
    weights = {"Weight": (2, 6), "Bias": (1, 6)}
    return [
        Case("gru", {"Input": _rows(6), **weights}),
        Case("gru", {"Input": _rows(6), **weights, "H0": (4, 2)}, {"is_reverse": True, "origin_mode": True}),
        Case(
            "gru", {"Input": _rows(6), "Weight": (2, 6)}, {"activation": "sigmoid", "gate_activation": "tanh"}
        ),
        Case("gru", {"Input": _rows(6, ((2, 1), (1, 2, 2))), **weights}),
        Case("gru", {"Input": _rows(6, ((0, 0),)), **weights, "H0": (2, 2)}),
        Case("gru_unit", {"Input": (3, 6), "HiddenPrev": (3, 2), **weights}),
        Case("gru_unit", {"Input": (3, 6), "HiddenPrev": (3, 2), "Weight": (2, 6)}, {"origin_mode": True}),
        Case("gru_unit", {"Input": (0, 6), "HiddenPrev": (0, 2), **weights}, {"activation": 0}),
    ]


RECURRENT_CASES: list[Case] = [*_lstms(), *_grus()]


def _crf(*lengths: tuple[int, ...]) -> Case:
    rows = sum(lengths[-1])
    inputs = {
        "Emission": Values((rows, 3), lengths=lengths),
        "Transition": (5, 3),
        "Label": _ids(rows, 1, high=3),
    }
    return Case("linear_chain_crf", inputs)


def _nces() -> list[Case]:
    base = {"Input": (4, 3), "Label": _ids(4, 1, high=6), "Weight": (6, 3)}
    attrs: dict[str, object] = {"num_total_classes": 6, "num_neg_samples": 4, "seed": 5}
    return [
        Case("nce", {**base, "Bias": (6, 1)}, attrs),
        Case("nce", base, {**attrs, "sampler": 1}),
        Case(
            "nce",
            {**base, "Label": _ids(4, 2, high=6), "Bias": (6,), "SampleWeight": Values((4, 1), "unit")},
            {**attrs, "custom_neg_classes": [1, 1, 5]},
            fixed=("SampleWeight",),
        ),
        Case(
            "nce",
            {**base, "CustomDistProbs": Values((6,), "probabilities")},
            {**attrs, "sampler": 2},
            fixed=("CustomDistProbs",),
        ),
        Case("nce", {**base, "Input": (0, 3), "Label": _ids(0, 1, high=6)}, attrs),
    ]


def _hierarchies() -> list[Case]:
    cases = []
    for classes in (2, 5, 6, 8):
        inputs = {
            "X": (4, 3),
            "W": (classes - 1, 3),
            "Label": _ids(4, 1, high=classes),
            "Bias": (classes - 1, 1),
        }
        cases.append(Case("hierarchical_sigmoid", inputs, {"num_classes": classes}))
    inputs = {"X": (4, 3), "W": (5, 3), "Label": _ids(4, 1, high=6)}
    custom = {"PathTable": _ids(4, 2, high=5), "PathCode": _ids(4, 2, high=2)}
    empty = {"X": (0, 3), "W": (5, 3), "Label": _ids(0, 1, high=6)}
    return [
        *cases,
        Case("hierarchical_sigmoid", {**inputs, **custom}, {"num_classes": 6}),
        Case("hierarchical_sigmoid", empty, {"num_classes": 6}),
    ]


def _drawn_classes() -> list[Case]:
    logits, chances = {"Logits": (4, 7), "Labels": _ids(4, 2, high=7)}, Values((4, 5), "unit")
    given = {"CustomizedSamples": _ids(4, 5, high=7), "CustomizedProbabilities": chances}
    attrs: dict[str, object] = {"num_samples": 3, "remove_accidental_hits": False}
    empty = {"Logits": (0, 7), "Labels": _ids(0, 1, high=7)}
    scored = ("SampledLogits",)
    return [
        Case("sample_logits", logits, attrs, scored=scored),
        Case("sample_logits", {**logits, **given}, attrs, fixed=("CustomizedProbabilities",), scored=scored),
        Case("sample_logits", empty, attrs, scored=scored),
    ]


SAMPLED_CASES: list[Case] = [
    *_drawn_classes(),
    _crf((2, 0, 3, 1)),
    _crf((0, 0)),
    _crf((1,)),
    *_nces(),
    *_hierarchies(),
]
