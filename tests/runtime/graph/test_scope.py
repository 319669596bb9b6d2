# SPDX-License-Identifier: Apache-2.0
"""Scopes keep values by name, and child scopes see their parents'."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.graph import Scope, unique_name
from paddle.graph.errors import NotInitialisedError


def test_a_scope_keeps_the_array_itself() -> None:
    scope, value = Scope(), np.zeros(3)
    scope.set("w", value)
    assert scope.get("w") is value


def test_a_missing_value_is_named() -> None:
    with pytest.raises(NotInitialisedError, match="'w' has no value") as caught:
        Scope().get("w")
    assert caught.value.name == "w"


def test_names_are_those_with_values_in_order() -> None:
    scope = Scope()
    scope.cell("empty")
    for name in ("b", "a"):
        scope.set(name, np.zeros(1))
    assert scope.names() == ["b", "a"]
    assert not scope.has("empty")


def test_a_child_sees_its_parents_values_and_hides_them_with_its_own() -> None:
    parent = Scope()
    parent.set("w", 1)
    child = parent.new_scope()
    assert child.has("w")
    child.set("w", 2)
    assert (parent.get("w"), child.get("w"), child.names()) == (1, 2, ["w"])


def test_unique_names_count_per_key_and_start_anew_inside_a_guard() -> None:
    with unique_name.guard():
        assert [unique_name.generate(key) for key in ("fc", "fc", "conv")] == ["fc_0", "fc_1", "conv_0"]
        with unique_name.guard("left_"):
            assert unique_name.generate("fc") == "left_fc_0"
        assert unique_name.generate("fc") == "fc_2"


def test_switching_the_generator_returns_the_old_one() -> None:
    with unique_name.guard():
        unique_name.generate("fc")
        old = unique_name.switch()
        assert unique_name.generate("fc") == "fc_0"
        unique_name.switch(old)
        assert unique_name.generate("fc") == "fc_1"
