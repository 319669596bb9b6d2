# SPDX-License-Identifier: Apache-2.0
"""JSON that others wrote: both sides read it alike, and what they return can be used without a look."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from agent.link import checked_json as of_agents
from launcher.system import checked_json
from tests.fuzz.shapes import JSON

BOTH = pytest.mark.parametrize("module", [checked_json, of_agents], ids=["launcher", "agent"])
Loads = Callable[[bytes], Any]


@BOTH
@pytest.mark.parametrize(
    "value", [0, -1, 2**63, 2**64 - 1, -(2**63), 0.5, "x", None, [1], {"a": [{}]}, "\udc80"]
)
def test_what_fits_comes_back_as_it_was(module: Any, value: Any) -> None:
    back = module.loads(json.dumps(value).encode())
    assert (back, type(back)) == (value, type(value))


@BOTH
@pytest.mark.parametrize(
    "text", ["9" * 400, "-" + "9" * 400, "9" * 5000, str(2**64), str(-(2**63) - 1), "1e999"]
)
def test_a_whole_number_of_more_than_64_bits_is_a_float(module: Any, text: str) -> None:
    assert type(module.loads(f'{{"a": {text}}}'.encode())["a"]) is float


@BOTH
@pytest.mark.parametrize("depth", [65, 66, 900, 100_000])
@pytest.mark.parametrize("around", ["[]", "{}"])
def test_what_is_nested_too_deeply_is_refused(module: Any, depth: int, around: str) -> None:
    opening, closing = ("[", "]") if around == "[]" else ('{"a":', "}")
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        module.loads((opening * depth + "1" + closing * depth).encode())
    assert module.loads((opening * 64 + "1" + closing * 64).encode())


@BOTH
@pytest.mark.parametrize("data", [b"", b"[", b"\xff", b"[1]", b"null", b'"x"', b"7"])
def test_what_is_no_object_is_refused(module: Any, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        module.as_object(data)


@given(JSON)
def test_both_sides_read_alike(value: Any) -> None:
    data = json.dumps(value).encode()
    assert json.dumps(checked_json.loads(data)) == json.dumps(of_agents.loads(data))
