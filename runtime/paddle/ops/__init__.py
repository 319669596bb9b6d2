# SPDX-License-Identifier: Apache-2.0
"""Operators by family, a folder each; importing this package fills the table in `ops.base.registry`.

A module in a family's folder is loaded without being named anywhere; `base` is what families import when they need it.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module


def _load_families() -> None:
    """Import every module of every family; `pkgutil` also finds them in a zip file."""
    for family in pkgutil.iter_modules(__path__, f"{__name__}."):
        if family.name != f"{__name__}.base":
            package = import_module(family.name)
            for module in pkgutil.iter_modules(package.__path__, f"{family.name}."):
                import_module(module.name)


_load_families()
