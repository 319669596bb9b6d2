# SPDX-License-Identifier: Apache-2.0
"""Signatures of functions and classes that are created from tables, given as Python syntax with literal defaults."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter, Signature
from typing import Any, TypeVar

T = TypeVar("T")
_literal = cache(ast.literal_eval)


def parsed(text: str) -> tuple[str, list[Parameter]]:
    """Parse a signature such as "name(argument, other=1.0)"; return the name and the parameters."""
    name, _, arguments = text.rstrip(")").partition("(")
    return name, [_parameter(each) for each in arguments.split(", ") if each]


def bound(name: str, signature: Signature, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Bind the arguments of a call to a signature; return all arguments by name, with defaults for missing ones.

    Raises:
        TypeError: the call does not match the signature; the message begins with the name.
    """
    try:
        found = signature.bind(*args, **named)
    except TypeError as error:
        for unknown in (each for each in named if each not in signature.parameters):
            near = difflib.get_close_matches(unknown, signature.parameters, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}{hint}") from None
        raise TypeError(f"{name}(): {error}") from None
    found.apply_defaults()
    return found.arguments


def function(text: str, says: str, body: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    """Return a function with the given signature and docstring; `body` receives the arguments by name."""
    name, parameters = parsed(text)
    signature = Signature(parameters)

    def call(*args: Any, **named: Any) -> Any:
        return body(bound(name, signature, args, named))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = says
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def signed(
    arguments: str, body: Callable[[dict[str, Any]], Any], like: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function with these arguments, and with the name, docstring and module of another function."""
    call = function(f"{like.__name__}({arguments})", like.__doc__ or "", body)
    call.__module__ = like.__module__
    return call


def takes(arguments: str) -> Callable[[Callable[[dict[str, Any]], T]], Callable[..., T]]:
    """Return a decorator that turns a function of a dictionary into one with these arguments, in Python syntax."""
    return lambda body: signed(arguments, body, body)


def renamed(given: Mapping[str, Any], names: str) -> dict[str, Any]:
    """Return selected arguments of a call under new names: "size act=gate_act" is `size`, and `gate_act` as `act`."""
    pairs = (each.partition("=") for each in names.split())
    return {name: given[source or name] for name, _, source in pairs}


def _parameter(text: str) -> Parameter:
    name, _, default = text.partition("=")
    return Parameter(
        name, Parameter.POSITIONAL_OR_KEYWORD, default=_literal(default) if default else Parameter.empty
    )
