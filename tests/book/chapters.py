# SPDX-License-Identifier: Apache-2.0
"""A book's chapters, as scripts of their time: how they run, alone and as a job, and whether they reach enough."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.local_nodes import warm_nodes
from tests.nursery import Forked, output_of
from tests.ports import free_range

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
LIMIT_S = 240
REACHED = re.compile(r"REACHED (?:accuracy|cost) ([\d.]+)(?: (?:of|by .*) ([\d.]+))?")


@dataclass(frozen=True)
class Chapter:
    """A script of the book.

    Attributes:
        script: its name, without .py.
        at_least: the accuracy on samples that were not trained with.
        at_most: or their cost, as a share of what the script says that the simplest guess costs, else as it is.
        data: the folder of the real data that it needs, beside the small sets.
        options: arguments.
        then: arguments of the run that shows what was reached, where it is a run of its own.
        distributed: whether two trainers run it too.
    """

    script: str
    at_least: float = 0.0
    at_most: float = float("inf")
    data: str = ""
    options: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    distributed: bool = True

    def __str__(self) -> str:
        return " ".join((self.script, *self.options))


def run(program: str, home: Path, folder: Path, *argv: str) -> str:
    """Run a script for "fluid" or "v2" there with these data sets, and return its output."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    own = {"PYTHONPATH": str(ROOT / "runtime"), "PADDLE_DATA_HOME": str(home)}
    return output_of(program, argv, {**os.environ, **threads, **own}, folder, LIMIT_S)[0]


def run_job(home: Path, folder: Path, *argv: str | Path) -> None:
    """Run a job of the launcher with these data sets to its successful end."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "runtime"), "PADDLE_DATA_HOME": str(home)}
    launcher = Forked("launcher", [*map(str, argv)], env, folder)
    output, _ = launcher.communicate(LIMIT_S)
    assert launcher.returncode == 0, output


def check(chapter: Chapter, told: str) -> None:
    """What the script said that it reached is good enough."""
    figure, simplest = REACHED.findall(told)[-1]
    assert float(figure) >= chapter.at_least
    assert float(figure) <= chapter.at_most * float(simplest or 1)


def workspace_of(chapter: Chapter, scripts: Path, folder: Path) -> Path:
    """A workspace in ``folder`` with the chapter's script, and the module that those of its book share."""
    if chapter.data and not (SHARED / chapter.data).is_dir():
        pytest.skip(f"needs the real data set {SHARED / chapter.data}")
    workspace = folder / "ws"
    workspace.mkdir()
    for script in (f"{chapter.script}.py", "roles.py"):
        if (scripts / script).is_file():
            shutil.copy(scripts / script, workspace)
    return workspace


def job_of(chapter: Chapter, workspace: Path, folder: Path) -> tuple[str | Path, ...]:
    """Return the launcher's arguments for the chapter as a job of two trainers and two pservers on this machine."""
    conf = folder / "conf.py"
    port = free_range(4)  # another job may hold the default one
    root = warm_nodes(folder / "nodes", 2)
    conf.write_text(f"HOSTS = ['local'] * 2\nPADDLE_PORT = {port}\nROOT_DIR = {str(root)!r}\n")
    entry = f"--entry={chapter.script}.py"
    return "-p", workspace, f"--conf={conf}", entry, "--env=PADDLE_DATA_HOME"
