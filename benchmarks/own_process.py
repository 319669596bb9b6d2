# SPDX-License-Identifier: Apache-2.0
"""Runs a measurement in a process that finds the package `paddle` before the script of that name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def run(module: str) -> int:
    """Run a module with this process's arguments, numpy on one thread; return its exit code."""
    path = {"PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"}
    argv = [sys.executable, "-P", "-m", module, *sys.argv[1:]]
    return subprocess.run(argv, env=os.environ | ONE_THREAD | path, check=False).returncode
