# SPDX-License-Identifier: Apache-2.0
"""The eight chapters of the v2 book, as scripts of their time, reach what they should: alone and by two trainers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.book.chapters import LIMIT_S, Chapter, check, job_of, run, run_job, workspace_of

SCRIPTS = Path(__file__).with_name("v2")
pytestmark = pytest.mark.timeout(2 * LIMIT_S + 10)
CHAPTERS = (
    Chapter("fit_a_line", at_most=20, data="uci_housing"),  # always to tell the mean of training costs 93
    Chapter("recognize_digits", at_least=0.88, data="mnist"),
    Chapter("image_classification", at_least=0.9),
    Chapter("image_classification", at_least=0.9, options=("--net=resnet",), distributed=False),
    Chapter("word2vec", at_most=0.98, data="imikolov"),
    Chapter("recommender_system", at_most=0.03),
    Chapter("understand_sentiment", at_least=0.72, data="imdb"),
    Chapter("understand_sentiment", at_least=0.65, data="imdb", options=("--net=lstm",), distributed=False),
    Chapter("label_semantic_roles", at_least=0.95),
    Chapter("machine_translation", at_least=0.96, then=("--generate",)),
)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=str)
def test_a_chapter_alone_reaches_its_figure(chapter: Chapter, home: Path, tmp_path: Path) -> None:
    workspace = workspace_of(chapter, SCRIPTS, tmp_path)
    told = run("v2", home, workspace, f"{chapter.script}.py", *chapter.options)
    if chapter.then:
        told = run("v2", home, workspace, f"{chapter.script}.py", *chapter.then)
    check(chapter, told)


@pytest.mark.parametrize("chapter", [each for each in CHAPTERS if each.distributed], ids=str)
def test_two_trainers_with_two_pservers_reach_the_figure_of_one(
    chapter: Chapter, home: Path, tmp_path: Path
) -> None:
    workspace = workspace_of(chapter, SCRIPTS, tmp_path)
    run_job(home, tmp_path, *job_of(chapter, workspace, tmp_path), *chapter.options)
    logs = {log.relative_to(workspace / "log").as_posix() for log in workspace.glob("log/node_*/*.log")}
    assert logs == {f"node_{node_id}/{role}.log" for node_id in range(2) for role in ("server", "train")}
    if chapter.then:  # with the model that came home
        check(chapter, run("v2", home, workspace, f"{chapter.script}.py", *chapter.then))
        return
    for node_id in range(2):
        check(chapter, (workspace / "log" / f"node_{node_id}" / "train.log").read_text())
