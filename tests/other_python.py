# SPDX-License-Identifier: Apache-2.0
"""Other Pythons of this machine: for programs that need a library of gigabytes, and of other versions."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

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


@functools.cache
def python_of(version: str) -> str:
    """A Python of a version such as 3.8: this one, or one on PATH or of pyenv that runs; skips without one."""
    if version.split(".") == [*map(str, sys.version_info[:2])]:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    there = [Path(folder, f"python{version}") for folder in os.get_exec_path()]
    for python in (*there, *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))):
        # pyenv puts a script on PATH for each version, which fails unless that version is selected
        if python.is_file() and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
            return str(python)
    pytest.skip(f"no python{version} runs here, of those on PATH and below {pyenv}")
