# SPDX-License-Identifier: Apache-2.0
"""One step of an update rule of `optim`, in place, and what operators do with gradient and rate before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import operator
from paddle.ops.base.selected_rows import SelectedRows
from paddle.optim.rules.rule import Rule, Step

# So many elements at a time, that a rule's intermediate results stay in the processor's cache.
_SLICE = 1 << 14
# Past all corrections of averages: operators that have such corrections come with them in the rate.
_LATE = 1 << 30


def dense(grad: Any, param: Array) -> Array:
    """Return a gradient as an array; rows that selected rows lack are 0.

    Raises:
        ShapeError: it does not fit the parameter.
    """
    if grad.shape != param.shape:
        raise ShapeError(f"the gradient {grad.shape} does not fit the parameter {param.shape}")
    return grad.to_dense() if isinstance(grad, SelectedRows) else grad


def merged(grad: SelectedRows, param: Array) -> SelectedRows:
    """Return a sparse gradient with each row once.

    Raises:
        ShapeError: it does not fit the parameter.
    """
    if grad.shape != param.shape:
        raise ShapeError(f"the sparse gradient {grad.shape} does not fit the parameter {param.shape}")
    return grad.merged()


def scalar(value: Array) -> Any:
    """Return the number in an array of one; on a GPU the array itself, which needs no wait."""
    return value.item() if isinstance(value, np.ndarray) else value.reshape(())


def take_step(rule: Rule, w: Array, g: Array, state: Mapping[str, Array], eta: Any) -> None:
    """Change `w` and `state`.

    Args:
        rule: with its hyperparameters.
        w: the parameter, or rows of it.
        g: its gradient, of the same shape.
        state: what the rule keeps, by its names; each of the same shape.
        eta: the rate, with the correction of averages in it if the rule has one.
    """
    step = Step(eta=eta, l2=0.0, mu=0.0, t=_LATE)
    names = list(state)
    if rule.needs_whole:
        rule.update(w, g, state, step)
        return
    for wi, gi, *kept in _pieces(w, g, *state.values()):
        rule.update(wi, gi, dict(zip(names, kept, strict=True)), step)


def _rate(given: Mapping[str, Any]) -> Any:
    return scalar(given["LearningRate"])


def step_operator(
    op_type: str,
    signature: str,
    rule: Callable[..., Rule],
    state: Mapping[str, str],
    attrs: Mapping[str, object],
    eta: Callable[[Mapping[str, Any]], Any] = _rate,
) -> None:
    """Register an operator whose step is a rule's alone: ParamOut and its state, in place.

    Args:
        op_type: Fluid's name of the operator.
        signature: see `ops.base.registry.operator`; outputs are the parameter and the state.
        rule: attributes as keywords -> the rule.
        state: the rule's name of what it keeps -> input slot, in the order of the outputs.
        attrs: see `operator`.
        eta: inputs by slot -> the rate, with the correction of averages in it.
    """
    left, _, right = signature.partition("->")
    slots = left.split()

    def step(*arrays: Any, **attributes: Any) -> Any:
        given = dict(zip(slots, arrays, strict=True))
        param, kept = given["Param"], {name: given[slot] for name, slot in state.items()}
        take_step(rule(**attributes), param, dense(given["Grad"], param), kept, eta(given))
        return (param, *kept.values())

    step.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in attrs])  # type: ignore[attr-defined]
    in_place = dict(zip(right.split(), ["Param", *state.values()], strict=True))
    operator(op_type, signature, attrs=attrs, in_place=in_place)(step)


def _pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield views of the same part of each array; of the whole, if they are small or not contiguous on the host."""
    first = arrays[0]
    if first.size <= _SLICE or any(
        type(array) is not np.ndarray or not array.flags.c_contiguous for array in arrays
    ):
        yield arrays
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, first.size, _SLICE):
        yield tuple(array[start : start + _SLICE] for array in flat)
