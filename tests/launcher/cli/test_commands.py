# SPDX-License-Identifier: Apache-2.0
"""Which command lines are commands, and which are jobs."""

from __future__ import annotations

import pytest

from launcher.cli import commands, main
from launcher.errors import UsageError


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_a_known_first_word_is_a_command(name: str) -> None:
    assert commands.named([name, "--json"]) == name


@pytest.mark.parametrize(
    "argv", [[], ["-p", "ws", "status"], ["--help"], ["--", "status"], ["train", "-p", "ws"], ["x", "-j=a"]]
)
def test_options_and_words_beside_a_job_are_the_jobs(argv: list[str]) -> None:
    assert commands.named(argv) is None


@pytest.mark.parametrize(("word", "near"), [("stauts", "status"), ("atach", "attach"), ("log", "logs")])
def test_a_misspelt_command_is_told_the_right_one(word: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean {near}"):
        commands.named([word])


def test_a_word_like_none_of_them_is_told_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["zebra", "--", "-p", "ws"]) == 2
    assert "status, attach, logs, stop" in capsys.readouterr().err
