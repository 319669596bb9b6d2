# SPDX-License-Identifier: Apache-2.0
"""Records are as the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from paddle_node.contract import classes
from paddle_node.contract.classes import dataclass as ours

FIELDS = {ours: classes.field, dataclasses.dataclass: dataclasses.field}


def made(decorator: Callable[..., Any]) -> Any:
    """A class with every kind of field that records have."""

    field: Any = FIELDS[decorator]

    @decorator(frozen=True)
    class Point:
        """A point."""

        x: int
        y: int = 2
        names: dict[str, int] = field(default_factory=dict, compare=False)
        secret: str = field(default="s", repr=False)

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
    assert [each.name for each in dataclasses.fields(point)] == ["x", "y", "names", "secret"]
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
    field: Any = FIELDS[decorator]

    @decorator
    class Count:
        """A count."""

        n: int = 0
        double: int = field(init=False)

        def __post_init__(self) -> None:
            self.double = 2 * self.n

    one: Any = Count(*[4])
    assert one.double == 8
    one.n = 5
    assert one.n == 5
    with pytest.raises(TypeError):
        hash(one)


@pytest.mark.parametrize("decorator", [ours, dataclasses.dataclass])
def test_a_record_has_the_fields_of_its_base_first(decorator: Any) -> None:
    @decorator
    class Base:
        """One field."""

        a: int
        b: int = 1

    @decorator
    class More(Base):
        """One more."""

        b: int = 3
        c: int = 2

    more: Any = More
    assert repr(more(7)).endswith("More(a=7, b=3, c=2)")
    assert more.__match_args__ == ("a", "b", "c")
    assert dataclasses.asdict(more(1, 2, 3)) == {"a": 1, "b": 2, "c": 3}


@ours(frozen=True, slots=True)
class Slotted:
    """A record without a dictionary."""

    x: int
    y: tuple[int, ...] = ()
    unit: str = classes.field(default="m", kw_only=True, metadata={"base": True})


@dataclasses.dataclass(frozen=True, slots=True)
class StandardSlotted:
    """The same by the standard decorator."""

    x: int
    y: tuple[int, ...] = ()
    unit: str = dataclasses.field(default="m", kw_only=True, metadata={"base": True})


@pytest.mark.parametrize("cls", [Slotted, StandardSlotted])
def test_a_record_with_slots_is_copied(cls: Any) -> None:
    one = cls(1, (2,), unit="s")
    assert not hasattr(one, "__dict__")
    assert [copy.copy(one), copy.deepcopy(one)] == [one] * 2  # by the methods that pickle uses
    assert cls.__match_args__ == ("x", "y")
    assert [dict(each.metadata) for each in dataclasses.fields(cls)] == [{}, {}, {"base": True}]
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 2
    with pytest.raises(TypeError, match="positional"):
        cls(1, (), "s")


@pytest.mark.parametrize("decorator", [ours, dataclasses.dataclass])
def test_methods_that_are_not_wanted_are_those_of_object(decorator: Any) -> None:
    @decorator(eq=False, repr=False, init=False)
    class Bare:
        """A class with fields alone."""

        n: int = 4

    one: Any = Bare()
    assert (one.n, one == Bare(), hash(one) == hash(one)) == (4, False, True)
    assert repr(one).endswith(f"{id(one):x}>")
    with pytest.raises(TypeError):
        decorator(Bare)(1, 2)


@pytest.mark.parametrize("cls", [Slotted, StandardSlotted])
def test_the_first_records_are_made_as_the_later_ones(cls: Any) -> None:
    alike = [cls(1, unit="s") for _ in range(8)]
    assert alike == [alike[0]] * 8
    for _ in range(8):  # Python's error, whether the constructor is compiled or not
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            cls()
    assert list(inspect.signature(cls.__init__).parameters) == ["self", "x", "y", "unit"]
    assert str(inspect.signature(cls)).startswith(
        "(x: 'int', y: 'tuple[int, ...]' = (), *, unit: 'str' = 'm')"
    )


def test_the_default_of_a_field_without_a_place_is_set_again_for_each_record() -> None:
    @ours
    class Held:
        """A record whose constructor does not accept its list."""

        n: int
        found: list[int] = classes.field(init=False, default_factory=list)
        kind: str = classes.field(init=False, default="k")

    made: list[Any] = [Held(n) for n in range(8)]
    for each in made:
        each.found.append(each.n)
    assert [each.found for each in made] == [[n] for n in range(8)]
    assert {each.kind for each in made} == {"k"}
    with pytest.raises(ValueError, match="cannot set kind"):
        classes.replace(made[0], kind="other")


def test_a_standard_record_can_have_one_as_its_base() -> None:
    @dataclasses.dataclass(frozen=True)
    class More(Slotted):
        """A record of a user."""

        z: float = 0.5

    assert More(1, (2,), 3.0, unit="s") == More(x=1, y=(2,), z=3.0, unit="s")
    assert repr(More(1)).endswith("More(x=1, y=(), unit='m', z=0.5)")
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        dataclasses.dataclass(type("Free", (Slotted,), {}))


def test_only_the_standard_functions_import_their_library() -> None:
    code = """
from __future__ import annotations
import sys
from paddle_node.contract.classes import dataclass, field, replace
@dataclass(frozen=True)
class Point:
    x: int
    names: list = field(default_factory=list)
assert "dataclasses" not in sys.modules and replace(Point(1), x=2) == Point(2)
assert "dataclasses" not in sys.modules
import dataclasses
assert dataclasses.asdict(Point(1)) == {"x": 1, "names": []}
"""
    path = str(Path(__file__).parents[2] / "runtime")
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, check=True, timeout=30)
