# SPDX-License-Identifier: Apache-2.0
"""Records that share their constructor equal those of `typing.NamedTuple`."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any

import pytest

from paddle_node.contract.classes import NamedTuple


class Ours(NamedTuple):
    """A record."""

    pid: int
    name: str = "none"

    def told(self) -> str:
        """Both."""
        return f"{self.pid}:{self.name}"


class Standard(typing.NamedTuple):
    pid: int
    name: str = "none"


class Never(NamedTuple):
    """Only ever read back."""

    at: int


@pytest.mark.parametrize("arguments", [((1,), {}), ((1, "a"), {}), ((), {"pid": 3}), ((1,), {"name": "b"})])
def test_a_record_is_made_as_the_standard_one_is(arguments: tuple[Any, dict[str, Any]]) -> None:
    given, named = arguments
    made, like = Ours(*given, **named), Standard(*given, **named)
    assert tuple(made) == tuple(like)
    assert repr(made) == repr(like).replace("Standard", "Ours")
    assert made._asdict() == like._asdict()
    assert tuple(made._replace(pid=9)) == tuple(like._replace(pid=9))
    assert made.told() == f"{like.pid}:{like.name}"


@pytest.mark.parametrize(
    "arguments", [((), {}), ((1, "a", 2), {}), ((1,), {"pid": 1}), ((1,), {"nobody": 1})]
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, dict[str, Any]]) -> None:
    given, named = arguments
    with pytest.raises(TypeError):
        Ours(*given, **named)


def test_a_class_says_what_its_fields_are() -> None:
    assert Ours._fields == Standard._fields == Ours.__match_args__
    assert Ours._field_defaults == {"name": "none"}
    assert typing.get_type_hints(Ours) == {"pid": int, "name": str}
    match Ours(4):
        case Ours(pid, name):
            assert (pid, name) == (4, "none")


def test_records_are_copied_and_pickled_and_made_of_values() -> None:
    assert pickle.loads(pickle.dumps(Ours(1))) == copy.deepcopy(Ours(1)) == Ours._make((1, "none"))
    assert Never._make([5]).at == 5
    with pytest.raises(TypeError, match="Expected 1 arguments"):
        Never._make([])
    with pytest.raises(ValueError, match="unexpected field names"):
        Ours(1)._replace(nobody=1)  # type: ignore[call-arg]


def test_fields_with_defaults_come_last() -> None:
    with pytest.raises(TypeError, match="without a default follows"):
        type(Ours)("Wrong", (NamedTuple,), {"__annotations__": {"a": "int", "b": "int"}, "a": 1})  # type: ignore[misc]


def test_a_class_of_a_record_class_adds_methods_and_no_field() -> None:
    class More(Ours):
        """With a method."""

        def doubled(self) -> int:
            """Twice."""
            return 2 * self.pid

    assert More(2).doubled() == 4
    assert More(2) == Ours(2)
    assert isinstance(More(2), Ours)
