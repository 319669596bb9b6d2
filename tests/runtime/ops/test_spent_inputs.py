# SPDX-License-Identifier: Apache-2.0
"""Fresh operators share no memory with their inputs, and writing into spent inputs changes no result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paddle.graph import append_backward
from paddle.graph.operator import EMPTY, Operator
from paddle.ops.base.registry import NO_SLOTS, lookup
from tests.runtime.ops.gradient_cases import CASES
from tests.runtime.ops.gradient_check import Case, OpProgram


def _called(op: Operator, values: dict[str, Any], spent: frozenset[str] = NO_SLOTS) -> list[Any]:
    """Call an operator's kernel with copies of its inputs; return inputs and outputs, one list."""
    definition = op.definition
    inputs: list[Any] = []
    for slot in definition.inputs:
        arrays = [None if name == EMPTY else values[name].copy() for name in op.inputs[slot.name]]
        inputs.append(arrays if slot.many else arrays[0] if arrays else None)
    special = {
        "needs": frozenset(slot.name for slot in definition.outputs),
        "xp": np,
        "spent": spent,
        "room": lambda slot: None,
        "names": {**op.inputs, **op.outputs},
    }
    keywords = {name: op.attrs.get(name.removesuffix("_"), special.get(name)) for name in definition.keywords}
    result = definition.kernel(*inputs, **keywords)
    given = [each for slot in inputs for each in (slot if isinstance(slot, list) else [slot])]
    slots = [result] if len(definition.outputs) == 1 else result
    made = [each for slot in slots for each in (slot if isinstance(slot, list) else [slot])]
    return [given, made]


def _runs(case: Case) -> Iterator[tuple[Operator, dict[str, Any]]]:
    """Yield the operators of a case and of its backward pass with the values that they read."""
    built = OpProgram(case, "float64")
    append_backward(built.add_loss())
    values = dict(built.feed)
    for op in built.block.ops:
        yield op, values
        _, made = _called(op, values)
        names = [name for slot in op.definition.outputs for name in op.outputs[slot.name]]
        values.update((name, array) for name, array in zip(names, made, strict=False) if array is not None)


def _is_plain(case: Case) -> bool:
    definition = lookup(case.op)
    gradient = lookup(f"{case.op}_grad") if definition.gradient == f"{case.op}_grad" else definition
    return (definition.fresh or gradient.fresh) and not definition.lod_aware and not definition.is_random


_CASES = [case for case in CASES if _is_plain(case)]


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_fresh_operators_share_no_memory(case: Case) -> None:
    for op, values in _runs(case):
        if op.definition.fresh:
            given, made = _called(op, values)
            arrays = [each for each in [*given, *made] if each is not None and each.size]
            for at, array in enumerate(arrays):
                if any(array is each for each in made):
                    assert not any(np.may_share_memory(array, other) for other in arrays[:at]), op.type


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_a_spent_input_changes_no_result(case: Case) -> None:
    for op, values in _runs(case):
        if "spent" in op.definition.keywords:
            _, plain = _called(op, values)
            for slot in op.inputs:
                _, reused = _called(op, values, frozenset([slot]))
                for array, expected in zip(reused, plain, strict=True):
                    np.testing.assert_array_equal(array, expected, err_msg=f"{op.type} {slot}")
