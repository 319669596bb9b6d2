# SPDX-License-Identifier: Apache-2.0
"""The chapters of the Fluid book, as scripts of their time, reach what they should: alone and by two trainers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.book.chapters import LIMIT_S, Chapter, check, job_of, run, run_job, workspace_of

SCRIPTS = Path(__file__).with_name("fluid")
pytestmark = pytest.mark.timeout(LIMIT_S + 10)
CHAPTERS = (
    Chapter("fit_a_line", at_most=0.7, data="uci_housing"),
    Chapter("fit_a_line_by_trainer", at_most=0.7, data="uci_housing"),
    Chapter("recognize_digits", at_least=0.8, data="mnist"),
    Chapter("image_classification", at_least=0.95),
    Chapter("word2vec", at_most=0.75, data="imikolov"),
    Chapter("recommender_system", at_most=0.05),
    Chapter("understand_sentiment", at_least=0.68, data="imdb"),
    Chapter(
        "understand_sentiment", at_least=0.62, data="imdb", options=("--net=dyn_rnn",), distributed=False
    ),
    Chapter("label_semantic_roles", at_least=0.95),
    Chapter("rnn_encoder_decoder", at_least=0.9),
    Chapter("machine_translation", at_least=0.96),
    Chapter("gan", at_most=0.5, data="mnist"),
)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=str)
def test_a_chapter_alone_reaches_its_figure(chapter: Chapter, home: Path, tmp_path: Path) -> None:
    workspace = workspace_of(chapter, SCRIPTS, tmp_path)
    check(chapter, run("fluid", home, workspace, f"{chapter.script}.py", *chapter.options))


@pytest.mark.parametrize("chapter", [each for each in CHAPTERS if each.distributed], ids=str)
def test_two_trainers_with_two_pservers_reach_the_figure_of_one(
    chapter: Chapter, home: Path, tmp_path: Path
) -> None:
    workspace = workspace_of(chapter, SCRIPTS, tmp_path)
    run_job(home, tmp_path, *job_of(chapter, workspace, tmp_path), "--mode=fluid", *chapter.options)
    check(chapter, (workspace / "log" / "node_0" / "train.log").read_text())
