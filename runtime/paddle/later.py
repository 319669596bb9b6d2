# SPDX-License-Identifier: Apache-2.0
"""Lazy imports: package namespaces whose modules are loaded when one of their names is first used.

The names of the parts resolve as if they had been imported: by an attribute, `from package import name`, `dir`,
`hasattr` and `import *`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from paddle.errors import did_you_mean


def attributes(
    package: str, parts: Mapping[str, str], otherwise: Callable[[str], Any] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` that make a package load its modules lazily.

    Args:
        package: name of the package, or of a module.
        parts: module -> the names that the package takes from it, separated by spaces, or "". A module that begins with
            a dot is a submodule: its own name is available too.
        otherwise: called for any other name; None means raises AttributeError.
    """
    modules = {module.removeprefix("."): module for module in parts if module.startswith(".")}
    names = {name: module for module, held in parts.items() for name in held.split()}

    def get(name: str) -> Any:
        if name in modules:
            return import_module(modules[name], package)
        if name in names:
            found = getattr(import_module(names[name], package), name)
            setattr(sys.modules[package], name, found)
            return found
        if otherwise is not None:
            return otherwise(name)
        hint = "" if name.startswith("_") else did_you_mean(name, listed())
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules, *names})

    return get, listed
