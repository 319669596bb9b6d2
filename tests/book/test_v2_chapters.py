# SPDX-License-Identifier: Apache-2.0
"""The eight chapters of the v2 book, as scripts of their time, reach what they should: alone and by two trainers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.book import small_data

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
SCRIPTS = Path(__file__).with_name("v2")
LIMIT_S = 240
pytestmark = pytest.mark.timeout(2 * LIMIT_S + 10)
REACHED = re.compile(r"REACHED (?:accuracy|cost) ([\d.]+)(?: by .* ([\d.]+))?")


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


CHAPTERS = (
    Chapter("fit_a_line", at_most=20, data="uci_housing"),  # always to tell the mean of training costs 93
    Chapter("recognize_digits", at_least=0.88, data="mnist"),
    Chapter("image_classification", at_least=0.9),
    Chapter("image_classification", at_least=0.9, options=("--net=resnet",), distributed=False),
    Chapter("word2vec", at_most=0.98, data="imikolov"),
    Chapter("recommender_system", at_most=0.03),
    Chapter("understand_sentiment", at_least=0.75, data="imdb"),
    Chapter("understand_sentiment", at_least=0.7, data="imdb", options=("--net=lstm",), distributed=False),
    Chapter("label_semantic_roles", at_least=0.95),
    Chapter("machine_translation", at_least=0.96, then=("--generate",)),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of data sets: small ones, and the real ones that this machine has."""
    home = tmp_path_factory.mktemp("home")
    small_data.cifar(home)
    small_data.movielens(home)
    small_data.conll05(home)
    small_data.wmt14(home)
    for name in ("mnist", "uci_housing", "imikolov"):
        (home / name).symlink_to(SHARED / name)
    (home / "imdb").mkdir()
    (home / "imdb" / "aclImdb_v1.tar.gz").symlink_to(SHARED / "imdb" / "aclImdb_v1-small2000.tar.gz")
    return home


def run(home: Path, folder: Path, *argv: str | Path) -> str:
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=folder,
        env={
            **os.environ,
            **threads,
            "PYTHONPATH": str(ROOT / "runtime"),
            "PADDLE_DATA_HOME": str(home),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(chapter: Chapter, told: str) -> None:
    """What the script said that it reached is good enough."""
    figure, simplest = REACHED.findall(told)[-1]
    assert float(figure) >= chapter.at_least
    assert float(figure) <= chapter.at_most * float(simplest or 1)


def workspace_of(chapter: Chapter, folder: Path) -> Path:
    if chapter.data and not (SHARED / chapter.data).is_dir():
        pytest.skip(f"needs the real data set {SHARED / chapter.data}")
    workspace = folder / "ws"
    workspace.mkdir()
    shutil.copy(SCRIPTS / f"{chapter.script}.py", workspace)
    return workspace


@pytest.mark.parametrize("chapter", CHAPTERS, ids=str)
def test_a_chapter_alone_reaches_its_figure(chapter: Chapter, home: Path, tmp_path: Path) -> None:
    workspace = workspace_of(chapter, tmp_path)
    told = run(home, workspace, f"{chapter.script}.py", *chapter.options)
    if chapter.then:
        told = run(home, workspace, f"{chapter.script}.py", *chapter.then)
    check(chapter, told)


@pytest.mark.parametrize("chapter", [each for each in CHAPTERS if each.distributed], ids=str)
def test_two_trainers_with_two_pservers_reach_the_figure_of_one(
    chapter: Chapter, home: Path, tmp_path: Path
) -> None:
    workspace = workspace_of(chapter, tmp_path)
    conf = tmp_path / "conf.py"
    conf.write_text(f"HOSTS = ['local'] * 2\nROOT_DIR = {str(tmp_path / 'nodes')!r}\n")
    job = (ROOT / "paddle.py", "-p", workspace, f"--conf={conf}", f"--entry={chapter.script}.py")
    run(home, tmp_path, *job, "--env=PADDLE_DATA_HOME", *chapter.options)
    if chapter.then:  # with the model that came home
        check(chapter, run(home, workspace, f"{chapter.script}.py", *chapter.then))
        return
    for node_id in range(2):
        check(chapter, (workspace / "log" / f"node_{node_id}" / "train.log").read_text())
