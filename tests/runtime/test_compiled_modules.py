# SPDX-License-Identifier: Apache-2.0
"""Modules of compiled loops are loaded when large arrays come, by whichever thread has them first: several at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime"
LIMIT_S = 100.0
BY_NUMBA = "kernel_cache.py"  # numba itself loads it, when it is whole
AT_ONCE = """
import importlib, sys, threading
import numpy

failures = []
gate = threading.Barrier(len(sys.argv) - 1)


def load(name):
    gate.wait()
    try:
        importlib.import_module(name)
    except BaseException as error:
        failures.append(f"{name}: {error!r}")


threads = [threading.Thread(target=load, args=(name,)) for name in sys.argv[1:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit("\\n".join(failures) or 0)
"""
MODULES = (
    "paddle.pserver.wire.dense_kernels",
    "paddle.pserver.sparse.row_kernels",
    "paddle.pserver.wire.arrival_kernel",
    "paddle.ops.base.kernels",
)


def numba_imports(path: Path) -> list[str]:
    """The modules of numba that one of ours imports, in its order."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        found += [name for name in names if name.partition(".")[0] == "numba"]
    return found


@pytest.mark.parametrize("turn", range(3))
def test_threads_that_load_them_at_once_all_get_them(turn: int) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", AT_ONCE, *MODULES],
        env={"PYTHONPATH": str(RUNTIME)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_who_imports_numba_begins_with_its_outermost_package() -> None:
    """Who begins with a module inside holds that and waits for the whole; who loads the whole waits for that."""
    imports = {path: numba_imports(path) for path in RUNTIME.rglob("*.py")}
    first = {path.name: names[0] for path, names in imports.items() if names}
    assert first.pop(BY_NUMBA).startswith("numba.")
    assert len(first) > 2
    assert set(first.values()) == {"numba"}
