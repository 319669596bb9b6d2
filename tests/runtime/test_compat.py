# SPDX-License-Identifier: Apache-2.0
"""paddle.compat: text, bytes and numbers as scripts for Python 2 and 3 alike expect them."""

from __future__ import annotations

from typing import Any

import pytest

import paddle.compat as cpt


def test_text_and_bytes_go_either_way_also_in_lists_and_sets() -> None:
    assert cpt.to_text(b"caf\xc3\xa9") == cpt.to_text("café") == "café"
    assert cpt.to_bytes(["a", b"b"]) == [b"a", b"b"]
    assert cpt.to_text({b"a"}) == {"a"}
    assert cpt.to_text(b"\xe9", "latin-1") == "é"
    assert cpt.to_text(None) is None
    assert cpt.to_bytes(3) == 3


@pytest.mark.parametrize(("given", "expected"), [([b"a", "b"], ["a", "b"]), ({b"a"}, {"a"})])
def test_a_container_is_changed_only_in_place(given: Any, expected: Any) -> None:
    kept = given.copy()
    assert cpt.to_text(given) == expected
    assert given == kept
    assert cpt.to_text(given, inplace=True) is given
    assert given == expected


@pytest.mark.parametrize(
    ("x", "d", "expected"),
    [(0.5, 0, 1.0), (2.5, 0, 3.0), (-0.5, 0, -1.0), (1.25, 1, 1.3), (-2.4, 0, -2.0), (0.0, 0, 0.0)],
)
def test_halves_are_rounded_away_from_zero(x: float, d: int, expected: float) -> None:
    assert cpt.round(x, d) == expected


def test_numbers_and_messages() -> None:
    assert cpt.floor_division(-7, 2) == -4
    assert isinstance(3, cpt.long_type)
    assert isinstance(3, cpt.int_type)
    assert cpt.get_exception_message(ValueError("so it is")) == "so it is"
