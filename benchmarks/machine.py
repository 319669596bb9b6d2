# SPDX-License-Identifier: Apache-2.0
"""Describes the machine of a benchmark, without which figures are meaningless."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

Facts = dict[str, str | int | float]
VERSION = re.compile(r"\d+\.\d+[\w.]*")
ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def describe(packages: tuple[str, ...] = (), tools: Mapping[str, tuple[str, ...]] | None = None) -> Facts:
    """Return facts about this machine.

    Args:
        packages: installed Python packages whose versions matter.
        tools: the name of each program and the argv that prints its version.
    """
    facts: Facts = {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }
    for name in packages:
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    for name, argv in (tools or {}).items():
        if shutil.which(argv[0]):
            facts[name] = _version(argv)
    return facts


def text(facts: Facts) -> str:
    """Return the facts as one line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(argv: tuple[str, ...]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    found = VERSION.search(done.stdout + done.stderr)
    return found.group(0) if found else "unknown"


def run_module(module: str) -> int:
    """Run a module with this process's arguments, with numpy on one thread; return its exit code."""
    path = {"PYTHONPATH": f"{ROOT / 'runtime'}{os.pathsep}{ROOT}"}
    argv = [sys.executable, "-P", "-m", module, *sys.argv[1:]]
    return subprocess.run(argv, env=os.environ | ONE_THREAD | path, check=False).returncode
