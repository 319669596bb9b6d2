# SPDX-License-Identifier: Apache-2.0
"""Lazy import of operator modules: a family's module is loaded when a program first names one of its operators.

Most programs need a fifth of all operators. An operator's name appears in quotes in the module that registers it and in
the module of its gradient. A module that computes the names of operators is loaded for every name that occurs in no
module.
"""

from __future__ import annotations

import pkgutil
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from functools import cache
from importlib import import_module

from paddle_node.contract.classes import regex

_PACKAGE = "paddle.ops"
_QUOTED = regex(rb'"(\w+)(?=")')
_WRITTEN = (b'operator("', b'operator(\n    "')


def load(op_type: str, table: Container[str]) -> None:
    """Import the modules that may register an operator, until it is in the table, and the modules with its gradient."""
    for names in stages(op_type):
        _import(names)
        if op_type in table:
            return


def load_all() -> None:
    """Import every module of every family."""
    _import(modules())


def modules() -> list[str]:
    """Return the names of all families' modules."""
    return list(_texts())


def stages(op_type: str) -> Iterator[list[str]]:
    """Yield the names of the modules that may register an operator, in three groups: likely ones, further ones, all."""
    index = _index()
    quoted = {name for each in (op_type, op_type.partition("_grad")[0]) for name in index.get(each, ())}
    yield [name for name in modules() if name in quoted]
    yield [name for name, text in _texts().items() if _makes_names(text)]
    yield modules()


def _import(names: Iterable[str]) -> None:
    for name in names:
        import_module(name)


def _makes_names(text: bytes) -> bool:
    """Return whether a module registers an operator under a computed name instead of a quoted one."""
    return text.count(b"operator(") > sum(map(text.count, _WRITTEN))


@cache
def _index() -> dict[str, list[str]]:
    """Return, for each quoted word, the names of the modules that contain it."""
    found = defaultdict[str, list[str]](list)
    for name, text in _texts().items():
        for word in set(_QUOTED.findall(text)):
            found[word.decode()].append(name)
    return dict(found)


@cache
def _texts() -> dict[str, bytes]:
    """Return the source of each module of a family; `pkgutil` also finds them in a zip file."""
    found = {}
    for family in pkgutil.iter_modules(import_module(_PACKAGE).__path__, f"{_PACKAGE}."):
        if family.name != f"{_PACKAGE}.base":
            for module in pkgutil.iter_modules(import_module(family.name).__path__):
                text = pkgutil.get_data(family.name, f"{module.name}.py")
                assert text is not None, f"{family.name}.{module.name} has no source"
                found[f"{family.name}.{module.name}"] = text
    return found
