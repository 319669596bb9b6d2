# SPDX-License-Identifier: Apache-2.0
"""Which other ways to move a gradient to another process and values back a Python has."""

from __future__ import annotations

import subprocess

PACKAGES = ("ray", "torch")
WAYS = {"gloo": ("torch", (1, 2)), "ray": ("ray", (1,))}
"""way -> the package that it needs, and with how many trainers it is measured."""

_START_S = 60.0


def has(python: str, package: str) -> bool:
    """Return whether a Python has a package."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return subprocess.run([python, "-c", code, package], timeout=_START_S, check=False).returncode == 0
