# SPDX-License-Identifier: Apache-2.0
"""Decorators for layer functions in scripts, which set omitted arguments: a name, an attribute or an activation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle.v2 import activation, model
from paddle.v2.attr import ParameterAttribute

__all__ = [
    "wrap_act_default", "wrap_bias_attr_default", "wrap_name_default", "wrap_param_attr_default", "wrap_param_default",
]  # fmt: skip

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
Unset = Callable[[Mapping[str, Any], str], bool]


def default_not_set_callback(kwargs: Mapping[str, Any], name: str) -> bool:
    """Return whether an argument is absent or None."""
    return kwargs.get(name) is None


def wrap_param_default(
    param_names: Sequence[str],
    default_factory: Callable[[Function], Any],
    not_set_callback: Unset = default_not_set_callback,
) -> Decorator:
    """Return a decorator that sets omitted arguments of a function to the result of a factory.

    Args:
        param_names: the names of these arguments.
        default_factory: called with the function; returns the value of an omitted argument.
        not_set_callback: function of the given arguments and a name; returns whether this argument was omitted.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        rest = [each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind_partial(*args, **kwargs)
            for name in param_names:
                own = name in signature.parameters or not rest
                held = bound.arguments if own else bound.arguments.setdefault(rest[0], {})
                if not_set_callback(held, name):
                    held[name] = default_factory(function)
            return function(*bound.args, **bound.kwargs)

        return call

    return decorate


def wrap_name_default(name_prefix: str | None = None, name_param: str = "name") -> Decorator:
    """Return a decorator that generates omitted names, such as `__NAME_0__`.

    The default of `name_prefix` is the function's name.
    """
    return wrap_param_default(
        [name_param], lambda function: model.current().auto_name(name_prefix or function.__name__)
    )


def wrap_param_attr_default(
    param_names: Sequence[str] = ("param_attr",),
    default_factory: Callable[[Function], Any] = lambda function: ParameterAttribute(),
) -> Decorator:
    """Return a decorator that sets omitted weight attributes to an attribute with all defaults."""
    return wrap_param_default(param_names, default_factory)


def wrap_bias_attr_default(
    param_names: Sequence[str] = ("bias_attr",),
    default_factory: Callable[[Function], Any] = lambda function: ParameterAttribute(
        initial_std=0.0, initial_mean=0.0
    ),
    has_bias: bool = True,
) -> Decorator:
    """Return a decorator that sets bias attributes that are True or (with `has_bias`) omitted to biases of zeros."""
    unset = (True, None) if has_bias else (True,)
    return wrap_param_default(
        param_names, default_factory, lambda kwargs, name: any(kwargs.get(name) is each for each in unset)
    )


def wrap_act_default(param_names: Sequence[str] = ("act",), act: activation.Base | None = None) -> Decorator:
    """Return a decorator that sets omitted activations; Tanh by default."""
    return wrap_param_default(param_names, lambda function: act or activation.Tanh())
