# SPDX-License-Identifier: Apache-2.0
"""Import aliases: makes a package importable under a second name, as `paddle.fluid` under `paddle.v2.fluid`.

The import system would load the modules of a package again under its second name; the finder of this module returns
those of the first name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Finder:
    """Finds modules whose names begin with one of `names`: second name -> first name."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for the module of the first name; None for all other names."""
        for second, first in self._names.items():
            if fullname == second or fullname.startswith(f"{second}."):
                loader: Any = _Loader(importlib.import_module(first + fullname[len(second) :]))
                return ModuleSpec(fullname, loader)
        return None


class _Loader:
    """Returns a module that is already loaded."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that is already loaded under its first name."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Undo the changes that the import system made to the module."""
        module.__spec__ = self._spec


class _Refusal:
    """Explains the absence of modules: name -> what to use instead."""

    def __init__(self, instead: Mapping[str, str]) -> None:
        self._instead = instead

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None for all other names.

        Raises:
            ModuleNotFoundError: this is one of the modules.
        """
        instead = self._instead.get(fullname)
        if instead is not None:
            raise ModuleNotFoundError(f"{fullname} is not supported: use {instead}", name=fullname)
        return None


def refuse(package: str, instead: Mapping[str, str]) -> None:
    """Make imports of modules that only the original has raise an error with advice: module name -> replacement."""
    sys.meta_path.insert(0, _Refusal({f"{package}.{name}": text for name, text in instead.items()}))


def install(names: Mapping[str, str]) -> None:
    """Make modules importable by second names too, from now on: second name -> first name."""
    sys.meta_path.insert(0, _Finder(names))


def nest(package: str, modules: Mapping[str, ModuleType]) -> None:
    """Make modules importable as `package.NAME` too, and set them as attributes: NAME -> module, outer names first."""
    for name, module in modules.items():
        outer, _, last = f"{package}.{name}".rpartition(".")
        sys.modules[f"{package}.{name}"] = module
        if last not in vars(sys.modules[outer]):
            setattr(sys.modules[outer], last, module)
