# SPDX-License-Identifier: Apache-2.0
"""Values larger than a message: the parts make the value again, whatever its rows take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError, WireError
from paddle.pserver.wire.assembled_values import Arriving, Gathering
from paddle.pserver.wire.message import Section
from paddle.pserver.wire.named_values import Rows, Value, from_sections, pack, parcels, wish, wishes_of

SHAPES = [(), (0,), (1,), (7,), (0, 3), (3, 0), (1, 9), (3, 5), (1, 1, 8), (2, 3, 4), (1, 2, 3, 1)]
LIMITS = [1, 4, 12, 20, 36, 1000]


def values() -> dict[str, Value]:
    rng = np.random.default_rng(2)
    dense: dict[str, Value] = {str(shape): rng.standard_normal(shape).astype(np.float32) for shape in SHAPES}
    turned = rng.standard_normal((4, 6)).T
    rows = Rows(np.array([4, 0, 4]), rng.standard_normal((3, 5)).astype(np.float32), 9)
    return {**dense, "turned": turned, "rows": rows}


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, Rows):
        np.testing.assert_array_equal(found.ids, expected.ids)
        assert found.height == expected.height
        found, expected = found.values, expected.values
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(found, expected)


def gathered(gathering: Gathering, held: dict[str, Value], limit: int) -> dict[str, Value]:
    for _ in range(1000):
        if not gathering.missing:
            break
        wishes = wishes_of([wish(gathering.missing)])
        gathering.take(pack(wishes, lambda name, _: held[name], limit))
    return gathering.values


def dense_bytes(sections: list[Section]) -> int:
    return sum(each.array.nbytes for each in sections if each.name[0] == "=")


@pytest.mark.parametrize("limit", LIMITS)
def test_parts_of_a_gradient_make_it_again_and_are_checked_as_it_is(limit: int) -> None:
    arriving, seen = Arriving(), dict[str, Any]()
    sent = values()

    def check(name: str, value: Value) -> None:
        seen[name] = value.height if isinstance(value, Rows) else (value.shape, value.dtype)

    for sections in parcels(sent, limit):
        arriving.take(sections, check)
        again = Arriving()
        for part in arriving.sections():
            again.take(part, check)
        assert again.unfinished == arriving.unfinished
        if not any("rows" in section.name for section in sections):
            assert dense_bytes(sections) <= max(limit, 8), "a message has an element more than it may have"
    assert not arriving.unfinished
    assert arriving.values.keys() == sent.keys()
    for name, value in sent.items():
        same(arriving.values[name], value)
        assert seen[name] == (value.height if isinstance(value, Rows) else (value.shape, value.dtype))


@pytest.mark.parametrize("limit", LIMITS)
def test_parts_of_an_answer_make_the_value_again(limit: int) -> None:
    held = values()
    found = gathered(Gathering(held), held, limit)
    for name, value in held.items():
        same(found[name], value)


@pytest.mark.parametrize("limit", LIMITS)
def test_values_are_written_to_arrays_of_their_shape_and_dtype(limit: int) -> None:
    held = values()
    dense = {name: value for name, value in held.items() if isinstance(value, np.ndarray)}
    homes = {name: np.full(value.shape, 7, value.dtype) for name, value in dense.items()}
    others = {
        "turned": np.full((4, 6), 7.0),
        "(2, 3, 4)": np.full((2, 3, 4), 7.0),
        "rows": np.full((3, 5), 7.0),
    }
    found = gathered(Gathering(held, homes), held, limit)
    unfit = gathered(Gathering(held, others), held, limit)
    for name, value in held.items():
        same(found[name], value)
        same(unfit[name], value)
    assert all(found[name] is home for name, home in homes.items())
    assert all((home == 7).all() for home in others.values())


def test_only_a_row_of_selected_rows_must_fit_in_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle.pserver.wire.named_values.MAX_FRAME_BYTES", 16)
    assert len(parcels({"wide": np.zeros((1, 9), np.float32)}, 16)) == 3
    with pytest.raises(ConfigError, match="'rows': a row has 28 bytes"):
        parcels({"rows": Rows(np.array([2]), np.zeros((1, 5), np.float32), 9)}, 16)


@pytest.mark.parametrize(
    "span", [[0, 6, 2, 2], [0, 6, -2, -3], [0, 6, 2, 3, 0], [0, 6, *[1] * 9], [0], [[0, 6]]]
)
def test_a_shape_that_the_elements_do_not_have_is_refused(span: list[Any]) -> None:
    sections = [Section("~g", np.array(span)), Section("=g", np.zeros(3, np.float32))]
    with pytest.raises(WireError):
        Arriving().take(sections, lambda name, value: None)
    assert from_sections(sections).keys() == {"g"}
