# SPDX-License-Identifier: Apache-2.0
"""Programs of tests that need a library of gigabytes run on a Python that has it, if one is named."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest


def python_with(module: str) -> str:
    """A Python that has a module: this one, or what PADDLE_TEST_PYTHON names."""
    named = os.environ.get("PADDLE_TEST_PYTHON", "")
    if importlib.util.find_spec(module) is None and not named:
        pytest.skip(
            f"{module} is not installed here: it is gigabytes; PADDLE_TEST_PYTHON may name a Python that has it"
        )
    has_it = importlib.util.find_spec(module) is not None
    python = sys.executable if has_it else named
    imports = f"import numpy, zmq, {module}"
    if subprocess.run([python, "-c", imports], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} cannot run `{imports}`")
    return python
