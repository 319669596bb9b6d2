# SPDX-License-Identifier: Apache-2.0
"""Operators of the update rules of `optim.rules`: one in-place step with a dense gradient or selected rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base import kernels
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import operator
from paddle.ops.base.selected_rows import SelectedRows
from paddle.optim.rules.rule import Rule, Step
from paddle.optim.rules.table import FLUID, Fluid

# Elements per piece, so that a rule's intermediate results stay in the processor's cache.
_SLICE = 1 << 14
# Below this size, calling a compiled loop takes longer than the plain form.
_COMPILED_FROM = 1 << 13
# A step number past all bias corrections: for operators that include the correction in the rate.
_LATE = 1 << 30


def _fitting(grad: Any, param: Any) -> Any:
    if grad.shape != param.shape:
        kind = "sparse gradient" if isinstance(grad, SelectedRows) else "gradient"
        raise ShapeError(f"expected a {kind} {param.shape} like the parameter, got {grad.shape}")
    return grad


def _scalar(value: Array) -> Any:
    """Return the number in an array of size one; on a GPU the array itself, which needs no synchronization."""
    return value.item() if isinstance(value, np.ndarray) else value.reshape(())


def take_step(rule: Rule, w: Array, g: Array, state: Mapping[str, Array], eta: Any) -> None:
    """Apply one step of an update rule, which changes `w` and `state` in place.

    Args:
        w: the parameter, or rows of it.
        g: the gradient of `w`, of the same shape.
        state: the rule's state variables by name, each of the same shape.
        eta: the learning rate, including bias correction if the rule has one.

    Float16 is computed as float32 and rounded at the end: squares of gradients and ε are 0 in float16.
    """
    if w.dtype == np.float16:
        wide = [array.astype(np.float32) for array in (w, g, *state.values())]
        take_step(rule, wide[0], wide[1], dict(zip(state, wide[2:], strict=True)), eta)
        for array, found in zip((w, *state.values()), (wide[0], *wide[2:]), strict=True):
            array[...] = found
        return
    step = Step(eta=eta, l2=0.0, mu=0.0, t=_LATE)
    names = list(state)
    if rule.needs_whole:
        rule.update(w, g, state, step)
        return
    for wi, gi, *kept in _pieces(w, g, *state.values()):
        rule.update(wi, gi, dict(zip(names, kept, strict=True)), step)


def _enter(cls: type[Any], fluid: Fluid) -> None:
    """Register a rule's operator, which updates ParamOut and the rule's state in place."""
    inputs, outputs = fluid.slots
    places = {slot.rstrip("?"): at for at, slot in enumerate(inputs)}
    sources = ["Param", *(kept.slot for kept in fluid.kept)]
    param_at, grad_at, *kept_at = (places[slot] for slot in ("Param", "Grad", *sources[1:]))
    names = [kept.name for kept in fluid.kept]
    rules: dict[tuple[tuple[str, Any], ...], Rule] = {}  # by attributes; an operator never changes its own

    def step(*arrays: Any, **attributes: Any) -> Any:
        key = tuple(attributes.items())
        rule = rules.get(key) or rules.setdefault(key, cls(**fluid.fields(attributes)))
        param, grad = arrays[param_at], _fitting(arrays[grad_at], arrays[param_at])
        state = {name: arrays[at] for name, at in zip(names, kept_at, strict=True) if arrays[at] is not None}
        eta = fluid.rate(lambda slot: _scalar(arrays[places[slot]]))
        if type(eta) is not float:
            eta = eta.astype(np.promote_types(param.dtype, np.float32))
        if not isinstance(grad, SelectedRows):
            _step_of_all(fluid, rule, param, grad, state, eta)
        elif attributes[fluid.rows] if isinstance(fluid.rows, str) else fluid.rows:
            _step_of_rows(fluid, rule, param, grad.merged(), state, eta)
        else:  # rows that the gradient lacks are 0
            _step_of_all(fluid, rule, param, grad.to_dense(), state, eta)
        return (param, *(arrays[at] for at in kept_at)) if kept_at else param

    step.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in fluid.attrs])  # type: ignore[attr-defined]
    operator(
        fluid.op_type,
        fluid.operator.partition(":")[2],
        attrs=fluid.attrs,
        # An optional slot has the parameter's spec.
        infer=", ".join(slot if slot in inputs else "Param" for slot in sources),
        in_place={out.rstrip("?"): slot for out, slot in zip(outputs, sources, strict=True)},
    )(step)


def _step_of_all(fluid: Fluid, rule: Rule, w: Array, g: Array, state: Mapping[str, Array], eta: Any) -> None:
    if fluid.compiled is not None and w.size >= _COMPILED_FROM and kernels.pay_off(w, g, *state.values()):
        getattr(kernels, fluid.op_type)(w, g, *state.values(), eta, *fluid.compiled(rule))
    else:
        take_step(rule, w, g, state, eta)


def _step_of_rows(
    fluid: Fluid, rule: Rule, param: Any, grad: SelectedRows, state: Mapping[str, Array], eta: Any
) -> None:
    rows, values = grad.rows, grad.values
    if not len(rows):
        return
    if isinstance(param, SelectedRows):  # which contains all rows of the gradient
        param, rows = param.values, param.rows.searchsorted(rows)
    if _steps_by_loop(fluid, rule, param, rows, values, state, eta):
        return
    w, kept = param[rows], {name: array[rows] for name, array in state.items()}
    take_step(rule, w, values, kept, eta)
    param[rows] = w
    for name, array in kept.items():
        state[name][rows] = array


def _steps_by_loop(
    fluid: Fluid, rule: Rule, param: Array, rows: Array, values: Array, state: Mapping[str, Array], eta: Any
) -> bool:
    if fluid.compiled is None or param.ndim != 2 or rows[0] < 0 or rows[-1] >= len(param):
        return False
    loop = getattr(kernels, f"{fluid.op_type}_rows", None)
    if loop is None or not kernels.pay_off(param, values, *state.values()):
        return False
    loop(param, rows, values, *state.values(), eta, *fluid.compiled(rule))
    return True


def _pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield views of the same part of each array, or whole arrays if they are small or not contiguous on the host."""
    first = arrays[0]
    if first.size <= _SLICE or any(
        type(array) is not np.ndarray or not array.flags.c_contiguous for array in arrays
    ):
        yield arrays
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, first.size, _SLICE):
        yield tuple(array[start : start + _SLICE] for array in flat)


for _row in FLUID:
    _enter(*_row)
