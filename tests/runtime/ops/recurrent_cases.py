# SPDX-License-Identifier: Apache-2.0
"""Cases of recurrent operators: both directions, with and without first states, sequences without rows."""

from __future__ import annotations

from tests.runtime.ops.gradient_check import Case, Values

_LENGTHS = ((2, 0, 3, 1),)


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
