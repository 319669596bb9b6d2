# SPDX-License-Identifier: Apache-2.0
"""Shape rules in text, and limits of attributes, mean what their notation says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.ops.base.attributes import Limit, one_of
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, lookup, registered
from paddle.ops.base.shape_rule import shape_rule

_FLOAT, _INT = np.dtype("float32"), np.dtype("int64")


def infer(text: str, *shapes: tuple[int, ...] | None, **attrs: Any) -> Any:
    specs = [None if shape is None else Spec(shape, _FLOAT, lod) for lod, shape in enumerate(shapes, 1)]
    return shape_rule(["X", "Y"][: len(shapes)], text)(*specs, attrs=attrs)


def test_a_name_stands_for_one_size_and_unknown_sizes_agree() -> None:
    assert infer("X(N, M), Y(N, K) -> X(M, K)", (-1, 2), (7, 3)).shape == (2, 3)
    assert infer("X(N, M), Y(N, K) -> X(N, K)", (-1, 2), (7, -1)).shape == (7, -1)
    with pytest.raises(ShapeError, match=r"X\(N, M\), Y\(N, K\), got X \(6, 2\), Y \(7, 3\)"):
        infer("X(N, M), Y(N, K) -> X(M, K)", (6, 2), (7, 3))


def test_three_dots_stand_for_the_same_dimensions() -> None:
    assert infer("X(N, ...), Y(..., 2) -> X(..., 1)", (4, 3, 5), (3, -1, 2)).shape == (3, 5, 1)
    with pytest.raises(ShapeError):
        infer("X(N, ...), Y(..., 2) -> X", (4, 3, 5), (3, 6, 2))
    with pytest.raises(ShapeError):
        infer("X(N, M, ...) -> X", (4,))


@pytest.mark.parametrize(("groups", "size", "found"), [(3, 12, 4), (3, -1, -1), (3, 11, None), (0, 12, None)])
def test_a_new_name_in_a_product_is_the_quotient(groups: int, size: int, found: int | None) -> None:
    if found is None:
        with pytest.raises(ShapeError, match=f"groups={groups}"):
            infer("X(N, C * groups) -> X(N, C)", (2, size), groups=groups)
    else:
        assert infer("X(N, C * groups) -> X(N, C)", (2, size), groups=groups).shape == (2, found)


def test_outputs_have_the_dtype_and_level_that_the_rule_names() -> None:
    text = "X(_, M) -> X(-1, M), X(1, lod=0), int64(k + 1, lod=max(X, Y, 1)), kind(*shape), Y"
    found = infer(text, (5, 2), (3,), k=4, kind=VarType.INT64, shape=(2, 8))
    assert found == (
        Spec((-1, 2), _FLOAT, 1),
        Spec((1,), _FLOAT, 0),
        Spec((5,), _INT, 2),
        Spec((2, 8), _INT, 0),
        Spec((3,), _FLOAT, 2),
    )


def test_an_optional_input_may_be_absent_and_all_parts_of_a_list_must_fit() -> None:
    assert infer("X(N), Y(N, 2) -> X(N)", (5,), None).shape == (5,)
    rule = shape_rule(["X"], "X(_, ...) -> X(-1, ...)")
    parts = [Spec((2, 3), _FLOAT), Spec((4, 3), _FLOAT)]
    assert rule(parts, attrs={}).shape == (-1, 3)
    with pytest.raises(ShapeError):
        rule([*parts, Spec((4, 2), _FLOAT)], attrs={})


@pytest.mark.parametrize(
    ("limit", "allowed", "refused"),
    [
        (one_of("max", "avg"), "avg", "min"),
        (Limit(int, least=1), 1, 0),
        (Limit(0.5, 0, 1), 1.0, float("nan")),
        (Limit((1, 1), least=1, length=2), (1, 2), (1, 2, 3)),
        (Limit((1, 1), least=1, length=2), (1, 2), (1, 0)),
    ],
)
def test_a_limit_allows_what_is_within_it(limit: Limit, allowed: object, refused: object) -> None:
    assert limit.refusal(allowed) is None
    assert limit.refusal(refused) is not None


def test_an_attribute_outside_its_limits_is_refused_by_name() -> None:
    with pytest.raises(AttrError, match=r"pool2d.*pooling_type: expected 'max' or 'avg', got 'min'"):
        lookup("pool2d").complete({"pooling_type": "min", "ksize": (2, 2)})


def test_every_default_is_within_its_limits() -> None:
    wrong = [
        (op_type, name)
        for op_type in registered()
        for name, limit in lookup(op_type).limits.items()
        if not isinstance(limit.default, type) and limit.refusal(limit.default)
    ]
    assert wrong == []
