# SPDX-License-Identifier: Apache-2.0
"""Signatures of functions and classes that are created from tables, given as Python syntax with literal defaults.

`misfit` checks a call of any function.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, Signature
from numbers import Number
from os import PathLike
from typing import Any, TypeVar

T = TypeVar("T")
C = TypeVar("C", bound=Callable[..., Any])
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_NEAR = 0.7
_MOST_LISTED = 30
_SYNONYMS = {
    "lr": ("learning_rate",),
    "activation": ("act",),
    "units": ("size",),
    "bias": ("bias_attr",),
    "weight_decay": ("regularization",),
    "inputs": ("input",),
    "params": ("parameters", "parameter_list"),
    "optimizer": ("update_equation",),
    "grad_clip": ("gradient_clipping_threshold",),
    "shuffle_size": ("buf_size",),
}
"""Other frameworks' names of arguments -> the possible names here."""
_ELSEWHERE = {
    name: f"pass it to minimize(loss, {name}=...)" for name in ("grad_clip", "no_grad_set", "parameter_list")
}
"""Arguments that optimizers took in later versions -> where they belong."""
_KINDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("batch_size", "buf_size", "n"), lambda value: isinstance(value, Number)),
    "dirname": lambda value: isinstance(value, (str, PathLike)),
    "executor": lambda value: hasattr(value, "run_core"),
    "feed_list": lambda value: isinstance(value, (list, tuple)),
    "place": lambda value: hasattr(value, "device"),
    "reader": callable,
}
"""Arguments that are confused with each other -> whether a value can be one."""
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
        raise TypeError(unknown_argument(name, signature.parameters, named) or f"{name}(): {error}") from None
    found.apply_defaults()
    return found.arguments


def unknown_argument(name: str, parameters: Mapping[str, Parameter], named: Iterable[str]) -> str:
    """Return the message about the first keyword argument that a function does not take, or ""."""
    known = [each.name for each in parameters.values() if each.kind in _BY_NAME and each.name != "self"]
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        return ""
    for unknown in (each for each in named if each not in known):
        return f"{name}() got an unexpected keyword argument {unknown!r}; {advice(unknown, known)}"
    return ""


def advice(unknown: str, known: Sequence[str], what: str = "its arguments") -> str:
    """Return advice for an unknown name: the one that was probably meant, or a list of known ones, called `what`."""
    near = [each for each in _SYNONYMS.get(unknown, ()) if each in known]
    if not near and unknown in _ELSEWHERE:
        return _ELSEWHERE[unknown]
    import difflib  # most programs make no such mistake

    near += difflib.get_close_matches(unknown, known, n=1, cutoff=_NEAR)
    more = f" and {len(known) - _MOST_LISTED} more" if len(known) > _MOST_LISTED else ""
    listed = ", ".join(known[:_MOST_LISTED]) or "none"
    return f"did you mean {near[0]!r}?" if near else f"{what} are {listed}{more}"


def misplaced(name: str, parameters: Sequence[str], args: Sequence[object]) -> str:
    """Return the message about the first positional argument that belongs to another one's place, or ""."""
    known = [(place, value) for place, value in zip(parameters, args, strict=False) if place in _KINDS]
    wrong = [(place, value) for place, value in known if not _KINDS[place](value)]
    for place, value in wrong:
        for other, _ in wrong:
            if _KINDS[other](value):
                order = ", ".join(each for each in parameters if each != "self")
                return (
                    f"{name}() got {value!r:.60} as {place}, but it fits {other}: exchange the arguments; the order "
                    f"is {name}({order})"
                )
    return ""


def explained(made: C) -> C:
    """Return a function, or a class, whose errors for unknown and for exchanged arguments name those that it takes.

    Python's own error names only the unknown one. A class is changed in place; a subclass's own constructor is not.
    """
    owner: Any = made
    is_class = isinstance(made, type)
    call = owner.__init__ if is_class else owner

    @cache  # only when it is called: inspecting all functions would slow down the import
    def places() -> list[str]:
        return [*(["self"] if is_class else []), *inspect.signature(made).parameters]

    @wraps(call)
    def checked(*args: Any, **named: Any) -> Any:
        if exchanged := misplaced(made.__name__, places(), args):
            raise TypeError(exchanged)
        try:
            return call(*args, **named)
        except TypeError:
            text = unknown_argument(made.__name__, inspect.signature(made).parameters, named)
            if not text:
                raise
        raise TypeError(text)

    if not is_class:
        return checked  # type: ignore[return-value]
    owner.__init__ = checked
    return made


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


def misfit(function: Callable[..., object], *arguments: object) -> str:
    """Return why a function cannot be called with these arguments; "" if it can, or if it is in C and does not say."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        return str(error)
    except ValueError:
        pass
    return ""
