# SPDX-License-Identifier: Apache-2.0
"""Signatures of functions declared by a decorator (`@takes("input, size=None")`), for the site's reference pages."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import griffe


class DeclaredSignatures(griffe.Extension):
    """Reads the parameters of decorated functions from the imported functions."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace the parameters in the source, which are a single dictionary of all arguments."""
        if [parameter.name for parameter in func.parameters] != ["given"]:
            return
        runtime = str(Path(__file__).resolve().parents[1] / "runtime")
        if runtime not in sys.path:
            sys.path.insert(0, runtime)
        declared = inspect.signature(getattr(importlib.import_module(func.module.path), func.name))
        func.parameters = griffe.Parameters(
            *(
                griffe.Parameter(
                    one.name,
                    kind=getattr(griffe.ParameterKind, one.kind.name.lower()),
                    default=None if one.default is one.empty else repr(one.default),
                )
                for one in declared.parameters.values()
            )
        )
