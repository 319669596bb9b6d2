# SPDX-License-Identifier: Apache-2.0
"""Every option, command, file and variable that a message names exists: advice that is followed must work."""

from __future__ import annotations

import ast
import re

import pytest

from paddle_cluster.cli import commands
from paddle_cluster.config.options import CONF_NAMES
from paddle_cluster.config.script_habits import MEANT
from tests.docs.option_tables import (
    FOR_INSTANCE,
    OF_OTHERS,
    ROOT,
    all_options,
    messages,
    modules,
    named,
    of_commands,
)
from tests.floors import nodes

_COMMAND = re.compile(r"`(?:[A-Z_]+=\S+ )*(?:python3? )?paddle(?:\.py|-cluster) ([a-z]+)\b([^`\n]*)`")
_PATH = re.compile(
    r"(?<![\w/.~$<>}{-])((?:docs|examples|tools|workspace_template|docker_cluster)/[\w./-]*\w)"
)
_PAGE = re.compile(r"(?<![\w/])([a-z][\w-]*\.md)\b")
_VARIABLE = re.compile(r"(?<![\w.{/$])([A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9])(?![\w({])")
_OF_USERS = ("paddle_cluster", "runtime", "workspace_template", "examples", "docker_cluster")
_OF_OTHERS = frozenset(
    {"SLURM_CONF", "PIP_INDEX_URL", "PIP_FIND_LINKS", "COMP_CWORD", "COMP_WORDBREAKS", "BASH_ALIASES"}
)


@pytest.mark.parametrize("top", _OF_USERS)
def test_options_exist(top: str) -> None:
    known = all_options() | OF_OTHERS | FOR_INSTANCE
    wrong = [
        f"{path}:{line}: --{option}"
        for path, line, text in messages(top)
        for option in named(text)
        if option not in known
    ]
    assert wrong == []


@pytest.mark.parametrize("top", _OF_USERS)
def test_commands_exist_and_take_the_options_that_are_shown(top: str) -> None:
    wrong = []
    for path, line, text in messages(top):
        for word, rest in _COMMAND.findall(text):
            if word not in commands.COMMANDS:
                wrong.append(f"{path}:{line}: paddle.py {word}")
                continue
            wrong += [
                f"{path}:{line}: {word} --{one}" for one in named(rest) if one not in of_commands()[word]
            ]
    assert wrong == []


@pytest.mark.parametrize("top", _OF_USERS)
def test_files_and_pages_exist(top: str) -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path, line, text in messages(top)
        for name in (*_PATH.findall(text), *(f"docs/{page}" for page in _PAGE.findall(text)))
        if not (ROOT / name).exists()
    ]
    assert wrong == []


def test_variables_that_the_launcher_names_exist() -> None:
    written = {
        node.value
        for path in modules()
        for node in nodes(path, ast.Constant)
        if isinstance(node.value, str) and " " not in node.value
    }
    wrong = [
        f"{path}:{line}: {name}"
        for path, line, text in messages("paddle_cluster")
        for name in _VARIABLE.findall(text)
        if name not in {*CONF_NAMES, *_OF_OTHERS, *MEANT, *written}
    ]
    assert wrong == []


def test_there_are_many_messages_that_name_something() -> None:
    found = [text for _, _, text in messages("paddle_cluster")]
    assert sum(bool(named(text)) for text in found) > 100
    assert sum(bool(_COMMAND.search(text)) for text in found) > 10
    assert sum(bool(_VARIABLE.search(text)) for text in found) > 30
