# SPDX-License-Identifier: Apache-2.0
"""Records are as the standard library's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from paddle_node.contract.classes import dataclass as ours


def made(decorator: Callable[..., Any]) -> Any:
    """A class with every kind of field that records have."""

    @decorator(frozen=True)
    class Point:
        """A point."""

        x: int
        y: int = 2
        names: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
        secret: str = dataclasses.field(default="s", repr=False)

    return Point


@pytest.fixture(params=[ours, dataclasses.dataclass], ids=["ours", "standard"])
def point(request: pytest.FixtureRequest) -> Any:
    """The class, made by each decorator: each fact below holds for both."""
    return made(request.param)


def test_fields_are_given_by_place_and_by_name_and_have_defaults(point: Any) -> None:
    one = point(1, secret="t")
    assert (one.x, one.y, one.names, one.secret) == (1, 2, {}, "t")
    assert point(1).names is not point(1).names
    assert dataclasses.replace(one, y=3).y == 3
    assert dataclasses.asdict(one) == {"x": 1, "y": 2, "names": {}, "secret": "t"}
    assert repr(one).endswith("Point(x=1, y=2, names={})")


def test_equality_and_hash_are_those_of_the_compared_fields(point: Any) -> None:
    assert point(1, names={"a": 1}) == point(1)
    assert hash(point(1, names={"a": 1})) == hash(point(1))
    assert point(1) != point(2)
    assert point(1) != (1, 2, "s")
    assert point(1) == mock.ANY


@pytest.mark.parametrize(
    ("args", "named"), [((), {}), ((1, 2, {}, "s", 5), {}), ((1,), {"x": 1}), ((1,), {"z": 1})]
)
def test_wrong_arguments_are_refused(point: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        point(*args, **named)


def test_a_frozen_record_does_not_change(point: Any) -> None:
    one = point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.x


@pytest.mark.parametrize("decorator", [ours, dataclasses.dataclass])
def test_a_record_that_is_not_frozen_changes_and_is_no_key(decorator: Any) -> None:
    @decorator
    class Count:
        """A count."""

        n: int = 0
        double: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            self.double = 2 * self.n

    one: Any = Count(*[4])
    assert one.double == 8
    one.n = 5
    assert one.n == 5
    with pytest.raises(TypeError):
        hash(one)
