# SPDX-License-Identifier: Apache-2.0
"""Cases of structured and sampled losses: CRF, nce, hierarchical sigmoid."""

from __future__ import annotations

from tests.runtime.ops.gradient_check import Case, Values


def _ids(*shape: int, high: int) -> Values:
    return Values(shape, "ids", high)


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
