# SPDX-License-Identifier: Apache-2.0
"""Compiled loops are kept once for a user and a version of the sources, wherever copies of these lie."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUNTIME = Path(__file__).resolve().parents[2] / "runtime"
SCRIPT = """
import numpy as np
from paddle.compiling import compiled
from paddle.ops.base import kernels
from paddle.kernel_cache import digest, folder
name = next(name for name in vars(kernels) if hasattr(vars(kernels)[name], "stats"))
loop = vars(kernels)[name]
print(digest(), folder(), loop._cache._impl.locator.get_cache_path())
"""


def facts(runtime: Path, **env: str) -> list[str]:
    """What a process with that copy of the sources says: digest, folder, place of one loop."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT],
        env={"PYTHONPATH": str(runtime), "PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    made = tmp_path / "runtime"
    shutil.copytree(RUNTIME / "paddle", made / "paddle", ignore=shutil.ignore_patterns("__pycache__"))
    return made


def test_copies_share_a_place_until_a_source_changes(copy: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home")}
    first = facts(RUNTIME, **home)
    assert facts(copy, **home) == first
    assert first[2].startswith(f"{tmp_path}/home/.cache/paddle/kernels/{first[0]}/")
    with (copy / "paddle" / "optim" / "rules" / "table.py").open("a") as file:
        file.write("\n")  # loops may be made of it, whichever file they are in
    changed = facts(copy, **home)
    assert changed[0] != first[0]
    assert changed[2] != first[2]


def test_without_a_home_loops_lie_beside_their_source(copy: Path) -> None:
    assert facts(copy, HOME="/proc/nowhere")[2] == f"{copy}/paddle/ops/base/__pycache__"


def test_a_place_that_the_user_chose_for_numba_counts(copy: Path, tmp_path: Path) -> None:
    place = facts(copy, HOME=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "mine"))[2]
    assert place.startswith(str(tmp_path / "mine"))
