# SPDX-License-Identifier: Apache-2.0
"""Calls of `transpile` as 0.11 to 0.14 took them: updates first, and settings among the arguments by position."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_UPDATES = ("optimize_ops", "params_grads")
_FIRST = ("trainer_id", "program", "pservers", "trainers")
_ORDERS = {
    4: (*_FIRST, "split_method", "sync_mode"),
    5: (*_FIRST, "slice_var_up", "split_method", "sync_mode"),
}
"""Position of the class that places parameters -> the arguments' order: 0.12 and 0.13, then 0.14."""


def takes_old_calls(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the method, which also takes the arguments of older versions."""

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        transpiler, *given = args
        for name in _UPDATES:
            named.pop(name, None)
        if given and isinstance(given[0], (list, tuple)):
            given = given[2:]  # what `minimize` returned, which the program says as well
            order = _ORDERS[4]
        else:
            order = next(
                (_ORDERS[at] for at, each in enumerate(given) if at in _ORDERS and isinstance(each, type)), ()
            )
        if order:
            named |= dict(zip(order, given, strict=False))
            given = []
        return method(transpiler, *given, **named)

    return call
