# SPDX-License-Identifier: Apache-2.0
"""Cases of operators on sequences: of several lengths, without rows, of two levels, and no sequence at all."""

from __future__ import annotations

from tests.runtime.ops.gradient_check import Case, Values

_ONE = ((2, 0, 3, 1),)
_TWO = ((2, 0, 1), (2, 3, 1))
_EMPTY = ((0, 0),)
_NONE: tuple[tuple[int, ...], ...] = ((),)


def _rows(
    *width: int, lengths: tuple[tuple[int, ...], ...] = _ONE, kind: str = "normal", high: int = 0
) -> Values:
    return Values((sum(lengths[-1]), *width), kind, high, lengths=lengths)


def _pools() -> list[Case]:
    cases = []
    for pooltype in ("SUM", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST"):
        for lengths in (_ONE, _TWO, _EMPTY, _NONE):
            inputs = {"X": _rows(3, lengths=lengths, kind="apart")}
            cases.append(Case("sequence_pool", inputs, {"pooltype": pooltype, "pad_value": 0.5}))
        cases.append(Case("sequence_pool", {"X": _rows(2, 2, kind="apart")}, {"pooltype": pooltype}))
    return cases


def _expansions() -> list[Case]:
    twice = ((2, 0, 3),)
    return [
        Case(
            "sequence_expand",
            {"X": _rows(2, lengths=((1, 2, 0),)), "Y": _rows(1, lengths=twice)},
            fixed=("Y",),
        ),
        Case("sequence_expand", {"X": (3, 2), "Y": _rows(1, lengths=twice)}, fixed=("Y",)),
        Case(
            "sequence_expand",
            {"X": _rows(2, lengths=((2, 1, 1),)), "Y": _rows(1, lengths=_TWO)},
            {"ref_level": 0},
            fixed=("Y",),
        ),
        Case("sequence_expand", {"X": (2, 3), "Y": _rows(1, lengths=_EMPTY)}, fixed=("Y",)),
        Case("sequence_expand_as", {"X": (4, 2), "Y": _rows(1)}, fixed=("Y",)),
        Case("sequence_expand_as", {"X": (2, 2), "Y": _rows(1, lengths=_EMPTY)}, fixed=("Y",)),
    ]


def _convolutions() -> list[Case]:
    cases = []
    for start, length in ((-1, 3), (0, 2), (-2, 2), (1, 2), (-3, 1)):
        attrs: dict[str, object] = {"contextStart": start, "contextLength": length}
        for lengths in (_ONE, _TWO, _EMPTY):
            cases.append(
                Case(
                    "sequence_conv", {"X": _rows(2, lengths=lengths), "Filter": (2 * length, 3)}, dict(attrs)
                )
            )
        padded = max(0, -start) + max(0, start + length - 1)
        inputs = {"X": _rows(2), "Filter": (2 * length, 3), "PaddingData": (padded, 2)}
        cases.append(Case("sequence_conv", inputs, {**attrs, "paddingTrainable": True}))
        around = {"X": inputs["X"], "PaddingData": inputs["PaddingData"]}
        cases.append(Case("sequence_context", around, {**attrs, "paddingTrainable": True}))
        cases.append(Case("sequence_context", {"X": _rows(2, lengths=_EMPTY)}, dict(attrs)))
    cases += [
        Case("row_conv", {"X": _rows(3, lengths=each), "Filter": (3, 3)}) for each in (_ONE, _TWO, _EMPTY)
    ]
    return cases


def _shapes() -> list[Case]:
    ints = Values((4, 1), "ids", 1)
    return [
        Case("sequence_softmax", {"X": _rows(1)}),
        Case("sequence_softmax", {"X": _rows(lengths=_TWO)}),
        Case("sequence_softmax", {"X": _rows(1, lengths=_EMPTY)}),
        Case("sequence_concat", {"X": [_rows(2), _rows(2, lengths=((0, 0, 2, 3),)), _rows(2)]}),
        Case("sequence_concat", {"X": [_rows(2, lengths=_EMPTY), _rows(2, lengths=_EMPTY)]}),
        Case("sequence_reverse", {"X": _rows(2)}),
        Case("sequence_reverse", {"X": _rows(2, lengths=_EMPTY)}),
        Case("sequence_slice", {"X": _rows(2), "Offset": ints, "Length": ints}),
        Case(
            "sequence_slice",
            {"X": _rows(2, lengths=_NONE), "Offset": (0, 1), "Length": (0, 1)},
            fixed=("Offset", "Length"),
        ),
        Case("sequence_pad", {"X": _rows(2), "PadValue": (1,)}, fixed=("PadValue",), scored=("Out",)),
        Case("sequence_pad", {"X": _rows(2), "PadValue": (2,)}, {"padded_length": 5}, fixed=("PadValue",)),
        Case("sequence_pad", {"X": _rows(2, lengths=_EMPTY), "PadValue": (1,)}, fixed=("PadValue",)),
        Case("sequence_unpad", {"X": (3, 4, 2), "Length": Values((3, 1), "ids", 5)}),
        Case("sequence_unpad", {"X": (0, 4, 2), "Length": Values((0, 1), "ids", 5)}),
        Case("sequence_reshape", {"X": _rows(4)}, {"new_dim": 2}),
        Case("sequence_reshape", {"X": _rows(2, lengths=((2, 0, 4),))}, {"new_dim": 4}),
        Case("sequence_reshape", {"X": _rows(2, lengths=_EMPTY)}, {"new_dim": 1}),
        Case("sequence_join", {"X": _rows(2, lengths=_TWO)}),
        Case("sequence_join", {"X": _rows(2, lengths=_EMPTY)}),
        Case("sequence_windows", {"X": _rows(2)}, {"stride": 2}),
        Case("sequence_windows", {"X": _rows(2, lengths=_TWO)}, {"stride": 2, "from_end": True}),
        Case("sequence_windows", {"X": _rows(2, lengths=_EMPTY)}, {"stride": 3}),
        Case("lod_reset", {"X": _rows(2)}, {"target_lod": [0, 4, 6]}),
        Case("lod_reset", {"X": (6, 2), "Y": _rows(1)}, fixed=("Y",)),
        Case(
            "sequence_scatter",
            {"X": (4, 5), "Ids": _rows(1, kind="ids", high=5), "Updates": _rows(1)},
        ),
        Case(
            "sequence_scatter",
            {
                "X": (2, 5),
                "Ids": _rows(1, lengths=_EMPTY, kind="ids", high=5),
                "Updates": _rows(1, lengths=_EMPTY),
            },
        ),
    ]


def _choices() -> list[Case]:
    rows = _rows(2, lengths=((4, 1, 3),))
    deep = _rows(2, lengths=((2, 1), (4, 1, 3)))
    return [
        Case("sequence_cut", {"X": rows, "Starts": _told((3, 2), 0, 2, 0, -1, 1, 1)}),
        Case("sequence_cut", {"X": deep, "Ends": _told((3, 1), 2, 0, -1)}),
        Case("sequence_cut", {"X": deep, "Starts": _told((3, 1), 1, 0, 0), "Ends": _told((3, 1), 3, 0, 1)}),
        Case("sequence_choose", {"X": deep, "Chosen": _told((2, 2), 1, 0, 0, -1)}),
        Case("sequence_choose", {"X": deep, "Chosen": _told((2, 2), 1, 1, -1, 0)}),
        Case(
            "cross_entropy_over_beam",
            {
                "Scores": [_rows(1, lengths=((3, 2),)), _rows(1, lengths=((2, 1), (4, 1, 3)))],
                "Kept": [_told((2, 2), 2, 0, 1, -1), _told((3, 2), 3, 1, 0, -1, 2, 1)],
                "Right": [_told((2, 1), 0, 1), _told((2, 1), 0, 0)],
            },
        ),
    ]


def _told(shape: tuple[int, ...], *numbers: int) -> Values:
    return Values(shape, "ids", given=numbers)


def _splits() -> list[Case]:
    return [
        Case("split_lod_tensor", {"X": _rows(2), "Mask": Values((6, 1), "booleans")}),
        Case("split_lod_tensor", {"X": _rows(2, lengths=_EMPTY), "Mask": Values((0, 1), "booleans")}),
        Case(
            "merge_lod_tensor",
            {"X": (3, 1), "Mask": Values((3, 1), "booleans"), "InTrue": (1, 2), "InFalse": (2, 2)},
            fixed=("X",),
        ),
    ]


SEQUENCE_CASES: list[Case] = [
    *_splits(),
    *_pools(),
    *_expansions(),
    *_convolutions(),
    *_shapes(),
    *_choices(),
]
