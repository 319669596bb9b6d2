# SPDX-License-Identifier: Apache-2.0
"""JSON that others wrote: what is returned can be used without a look."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddle_node.contract import checked_json


@pytest.mark.parametrize(
    "value", [0, -1, 2**63, 2**64 - 1, -(2**63), 0.5, "x", None, [1], {"a": [{}]}, "\udc80"]
)
def test_what_fits_comes_back_as_it_was(value: Any) -> None:
    back = checked_json.loads(json.dumps(value).encode())
    assert (back, type(back)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["9" * 400, "-" + "9" * 400, "9" * 5000, str(2**64), str(-(2**63) - 1), "1e999"]
)
def test_a_whole_number_of_more_than_64_bits_is_a_float(text: str) -> None:
    assert type(checked_json.loads(f'{{"a": {text}}}'.encode())["a"]) is float


@pytest.mark.parametrize("depth", [65, 66, 900, 100_000])
@pytest.mark.parametrize("around", ["[]", "{}"])
def test_what_is_nested_too_deeply_is_refused(depth: int, around: str) -> None:
    opening, closing = ("[", "]") if around == "[]" else ('{"a":', "}")
    with pytest.raises(ValueError, match="nested more than 64 "):
        checked_json.loads((opening * depth + "1" + closing * depth).encode())
    assert checked_json.loads((opening * 64 + "1" + closing * 64).encode())


def test_nesting_is_refused_before_the_text_is_decoded() -> None:
    with pytest.raises(ValueError, match="nested more than 64 "):
        checked_json.loads(b"[" * 65 + b"no JSON")


@pytest.mark.parametrize(
    "text", ["[" * 99, '"' + "[{" * 99, "\\" + "]" * 99 + "{" * 9, '\\"[' * 99, '"\\\\' * 99]
)
def test_brackets_in_strings_are_no_nesting(text: str) -> None:
    value = [text] * 70 + [{text: [text]}]
    assert checked_json.loads(json.dumps(value)) == value
    assert checked_json.loads(json.dumps([[]] * 70)) == [[]] * 70


@pytest.mark.parametrize("data", [b"", b"[", b"\xff", b"[1]", b"null", b'"x"', b"7"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        checked_json.as_object(data)
