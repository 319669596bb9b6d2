# SPDX-License-Identifier: Apache-2.0
"""Every command in README and docs: its words and options exist, and a job would begin as it says (--dry_run).

A command stands in a block (four blanks, or a fence) and begins with a program that we know, perhaps after `$ ` and
variables. Left out are, by `is_form`, lines that show a form rather than a command: with [brackets] or (choices) in
them, or an ellipsis. What a job's options say is checked as the launcher reads it; jobs of directories that are here
are built down to the last process.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from paddle_cluster.cli import commands
from paddle_cluster.cli.main import main, named
from paddle_cluster.config import arguments
from tests.docs.option_tables import FOR_INSTANCE, OF_JOBS, OF_OTHERS, ROOT, all_options, of_commands

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

_BLOCK = re.compile(r"^    ([^\n]*)$|^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PROGRAM = re.compile(
    r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:source <\()?"
    r"(?:(?:[\w./]*/)?python3? (?:-P )?(?:\./)?(paddle\.py)|(?:[\w./]*/)?(paddle-cluster)|(paddle\.py))(?: (.*))?$"
)
_MODULE = re.compile(r"python3? (?:-\w+ )*-m ([\w.]+)")
_SHELL = re.compile(r"(?:^|\s)sh ([\w./-]+\.sh)")
_INLINE = re.compile(r"`(?:python )?paddle(?:\.py|-cluster) ([a-z]+)")
_OPTION = re.compile(r"`--([a-z][a-z_0-9-]*)")
_PATH = re.compile(
    r"(?<![\w/.~$<>}-])((?:docs|examples|tests|tools|launcher|runtime|benchmarks|workspace_template|docker_cluster"
    r"|paddle_cluster)/[\w./-]*\w)"
)
_MADE = re.compile(
    r"/(?:log|output)(?:/|$)|workspace_template/[\w.-]*\.(?:txt|pickle)"
)  # what jobs leave there
_WRONG = frozenset(
    {"dry-run", "job_dispach_package", "machinefile", "num_pass", "root_dir"}
)  # told as mistakes that people make


class Command(NamedTuple):
    """One command line of a page."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"[:100]


def is_form(line: str) -> bool:
    """Whether a line shows how commands are written, instead of one."""
    return bool(re.search(r"\[[^\]]*\]|\(-|\.\.\.|<\w", line.split("#")[0]))


@cache
def lines() -> tuple[tuple[str, str], ...]:
    """(page, line) of every block; a line that ends in a backslash goes on."""
    found = []
    for page in PAGES:
        for own, fenced in _BLOCK.findall(page.read_text(encoding="utf-8")):
            text = (own or fenced).replace("\\\n", " ")
            found += [(page.name, line.strip()) for line in text.splitlines()]
    return tuple(found)


@cache
def cells() -> tuple[tuple[str, str], ...]:
    """(page, command) of every cell of a table that is a command of ours, as in porting.md."""
    return tuple(
        (page.name, code)
        for page in PAGES
        for code in re.findall(r"\| `(python paddle\.py [^`]+)` \|", page.read_text(encoding="utf-8"))
    )


def launches() -> Iterator[Command]:
    """Every command of ours."""
    for page, line in (*lines(), *cells()):
        for part in re.split(r" && | \| ", line):
            match = _PROGRAM.match(part.strip())
            if match is None or is_form(part):
                continue
            rest = (match[4] or "").rstrip(")") if "<(" in part else match[4] or ""
            yield Command(page, tuple(shlex.split(re.sub(r" {2,}.*$", "", rest), comments=True)))


ALL = sorted(set(launches()), key=str)


@pytest.mark.parametrize("command", ALL, ids=str)
def test_it_can_be_given(command: Command, monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    words = [word for word in command.words if word != "&"]
    name = named(words)
    if name is not None and name != commands.JOB:
        known = of_commands()[name] | (OF_JOBS if name == "doctor" else set())
        given = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
        assert given - known == set(), f"{name} has no such option"
        return
    words = words[1:] if name else words
    parsed = arguments.parse(words)
    workspace = ROOT / (parsed["job_dispatch_package"] or "none")
    if (
        workspace.is_dir()
        and not parsed["nnodes"]
        and parsed["engine"] == "ssh"
        and not set(words) & {"-h", "--help"}
    ):
        monkeypatch.chdir(ROOT)
        monkeypatch.setenv("PADDLE_CLUSTER_CONF", str(ROOT / "conf.py"))
        quiet = [word for word in words if word not in ("--detach", "--json", "--dry_run")]
        own = [word for word in quiet if not word.startswith(("--conf", "--hosts", "--env"))]
        assert main(["--dry_run", *own]) == 0


PORTED = sorted({one for one in ALL if one.page == "porting.md"}, key=str)


@pytest.mark.parametrize("command", PORTED, ids=str)
def test_what_stands_for_a_command_of_another_launcher_is_a_whole_job(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ws/pkg").mkdir(parents=True)
    (tmp_path / "ws/train.py").write_text("import paddle\n")
    (tmp_path / "ws/pkg/train.py").write_text("pass\n")
    (tmp_path / "ws/run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "ws/run.sh").chmod(0o755)
    (tmp_path / "machines").write_text("node-a slots=2\nnode-b slots=2\n")
    (tmp_path / "conf.py").write_text("HOSTS = ['node-a', 'node-b']\n")
    words = [word for word in command.words if word != "--detach"]
    assert main(["--dry_run", "--conf=conf.py", *words]) == 0


def test_porting_has_a_command_for_each_launcher() -> None:
    assert len(PORTED) > 15


def test_there_are_commands_on_most_pages() -> None:
    assert len(ALL) > 50
    assert {"README.md", "quick-start.md", "tutorial-pytorch.md", "checkpoints.md"} <= {
        one.page for one in ALL
    }


def test_words_options_and_paths_in_the_text_exist() -> None:
    known = all_options() | OF_OTHERS | FOR_INSTANCE | _WRONG
    wrong = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        wrong += [f"{page.name}: paddle.py {w}" for w in _INLINE.findall(text) if w not in commands.COMMANDS]
        wrong += [f"{page.name}: --{one}" for one in _OPTION.findall(text) if one not in known]
        wrong += [
            f"{page.name}: {path}"
            for path in _PATH.findall(text)
            if not (_MADE.search(path) or (ROOT / path).exists() or (ROOT / "tests" / path).exists())
        ]
    assert wrong == []


def test_modules_and_scripts_that_commands_name_exist() -> None:
    wrong = []
    for page, line in lines():
        for module in _MODULE.findall(line):
            where = [top / module.replace(".", "/") for top in (ROOT, ROOT / "runtime")]
            ours = module.split(".")[0] in ("paddle", "benchmarks", "tests", "paddle_cluster", "paddle_node")
            if ours and not any(path.with_suffix(".py").is_file() or path.is_dir() for path in where):
                wrong.append(f"{page}: -m {module}")
        wrong += [f"{page}: sh {script}" for script in _SHELL.findall(line) if not (ROOT / script).is_file()]
    assert wrong == []
