# SPDX-License-Identifier: Apache-2.0
"""Makes the agent's modules importable from memory and starts it: nothing is installed on a node.

The launcher's command line runs this text with `exec` and calls `boot`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any, Dict, Optional


class MemoryImporter(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules whose sources were sent; tracebacks can show their lines."""

    def __init__(self, sources: Dict[str, str]) -> None:
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Any = None, target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """Part of importlib's protocol."""
        if fullname not in self._sources:
            return None
        is_package = self.is_package(fullname)
        return importlib.machinery.ModuleSpec(fullname, self, origin="<sent>", is_package=is_package)

    def is_package(self, fullname: str) -> bool:
        """Part of importlib's protocol."""
        return any(name.startswith(fullname + ".") for name in self._sources)

    def get_source(self, fullname: str) -> str:
        """Part of importlib's protocol."""
        return self._sources[fullname]


def boot(sources: Dict[str, str], nonce: str) -> None:
    """Import the agent from `sources` and run it until the launcher lets it go."""
    sys.meta_path.insert(0, MemoryImporter(sources))
    from agent.guard import guard

    sys.exit(guard(nonce))
