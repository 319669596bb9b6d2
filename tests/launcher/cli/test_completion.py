# SPDX-License-Identifier: Apache-2.0
"""Completion: which words are offered, and that bash and zsh, really run, come to the same."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from paddle_cluster.cli.commands import COMMANDS
from paddle_cluster.cli.commands.completion import Offer, OfferKind, offers, run
from paddle_cluster.config.options import OPTIONS
from paddle_cluster.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
PADDLE = shlex.join([sys.executable, str(ROOT / "paddle.py")])
ZSH = shutil.which("zsh")
LIMIT_S = 60


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a workspace, some files and no known job."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDLE_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "ws/src").mkdir(parents=True)
    for name in ("ws/train.py", "ws/run.sh", "ws/src/deep.py", "my conf.py", "mine.txt"):
        (tmp_path / name).touch()
    return tmp_path


def words(*line: str, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    offer = offers(line, os.environ if environ is None else environ)
    assert offer.kind is OfferKind.WORDS
    return offer.words


# What is offered


def test_a_line_begins_with_a_command_or_an_option(here: Path) -> None:
    assert words("") == tuple(COMMANDS)
    assert words("st") == ("status", "stop")
    for option in OPTIONS:
        assert f"--{option.name}" + ("=" if option.metavar else "") in words("--")


def test_an_option_that_was_given_is_offered_again_only_if_it_repeats(here: Path) -> None:
    offered = words("--conf=x", "--env=A=1", "--dry_run", "--")
    assert not {"--conf=", "--dry_run"} & set(offered)
    assert {"--env=", "--mode="} <= set(offered)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["--mode="], ("--mode=v2", "--mode=fluid", "--mode=collective", "--mode=v1")),
        (["--mode=c"], ("--mode=collective",)),
        (["--mode", "f"], ("fluid",)),
        (["--wire="], ("--wire=curve", "--wire=plain")),
        (["-p", "ws", "--entry="], ("--entry=run.sh", "--entry=src/", "--entry=train.py")),
        (["--job_dispatch_package=ws", "--entry", "src/"], ("src/deep.py",)),
        (["-p", "ws", "--shard_dirs="], ("--shard_dirs=src/",)),
        (["--trainer_c"], ("--trainer_count=",)),
        (["logs", "--proc="], ("--proc=launcher", "--proc=pserver", "--proc=trainer")),
        (["completion", ""], ("bash", "zsh")),
        (["help", "any"], ("any-script",)),
        (["doctor", "--mode=f"], ("--mode=fluid",)),
        (["run", "--mode=c"], ("--mode=collective",)),
        (["--nproc_per_node="], ()),
    ],
)
def test_a_value_is_offered_where_it_is_known(here: Path, line: list[str], expected: tuple[str, ...]) -> None:
    assert words(*line) == expected


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (["--conf="], OfferKind.FILES),
        (["--conf", ""], OfferKind.FILES),
        (["--env_file="], OfferKind.FILES),
        (["-p", ""], OfferKind.DIRS),
        (["--job_dispatch_package="], OfferKind.DIRS),
        (["-p", "ws", "--", ""], OfferKind.FILES),
        (["status", "--conf="], OfferKind.FILES),
        (["init", ""], OfferKind.DIRS),
    ],
)
def test_files_are_left_to_the_shell(here: Path, line: list[str], kind: OfferKind) -> None:
    assert offers(line, {}) == Offer(kind)


def test_variables_of_the_environment_are_offered_for_env() -> None:
    assert words("--env=TOK", environ={"TOKEN": "secret", "OTHER": ""}) == ("--env=TOKEN",)


def test_every_command_has_words_of_its_own_or_jobs(here: Path) -> None:
    for command in COMMANDS:
        offers([command, ""], {"PADDLE_STATE_DIR": str(here)})


@pytest.mark.parametrize("argv", [[], ["fish"], ["bash", "zsh"], ["words"]])
def test_another_shell_is_refused(argv: list[str]) -> None:
    with pytest.raises(UsageError, match="expected bash or zsh"):
        run(argv)


# bash


def bash(code: str, here: Path) -> str:
    done = subprocess.run(
        ["bash", "--norc", "-c", f"source <({PADDLE} completion bash)\n{code}"],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env={**os.environ, "HOME": str(here)},
    )
    assert done.stderr == ""
    return done.stdout


def bash_replies(here: Path, function: str, *line: str, before: str = "") -> list[str]:
    """COMPREPLY for these words, parted as bash parts them: at `=` too."""
    array = " ".join(shlex.quote(word) for word in line)
    code = f"""
    shopt -s expand_aliases
    {before}
    COMP_WORDS=({array}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    {function} "${{COMP_WORDS[0]}}"
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return bash(code, here).splitlines()


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        (["paddle.py", "sta"], ["status"]),
        (["./paddle.py", "--npr"], ["--nproc_per_node="]),
        (["paddle.py", "--mode", "="], ["v2", "fluid", "collective", "v1"]),
        (["paddle.py", "--mode", "=", "co"], ["collective"]),
        (["paddle.py", "--mode", "co"], ["collective"]),
        (["paddle.py", "--conf", "=", "my"], ["my conf.py"]),
        (["paddle.py", "--conf", "m"], ["my conf.py", "mine.txt"]),
        (["paddle.py", "-p", "w"], ["ws"]),
        (["paddle.py", "-p", "ws", "--entry", "=", "tr"], ["train.py"]),
        (["paddle.py", "help", "any"], ["any-script"]),
    ],
)
def test_bash_offers_the_part_after_its_word_break(here: Path, line: list[str], replies: list[str]) -> None:
    assert sorted(bash_replies(here, "_paddle_py", *line)) == sorted(replies)


def test_bash_completes_python_paddle_py_and_leaves_other_uses_of_python_alone(here: Path) -> None:
    for launcher in (["python", "paddle.py"], ["python3", "-X", "/x/paddle.py"]):
        assert bash_replies(here, "_paddle_py_python", *launcher, "sta") == ["status"]
    assert bash_replies(here, "_paddle_py_python", "python", "other.py", "sta") == [""]
    before = "_other() { COMPREPLY=(from other); }; _paddle_py_before[python]=_other"
    got = bash_replies(here, "_paddle_py_python", "python", "other.py", "sta", before=before)
    assert got == ["from", "other"]


def test_bash_completes_an_alias_that_was_there_before(here: Path) -> None:
    code = f"""
    shopt -s expand_aliases
    alias early='python /x/paddle.py'
    source <({PADDLE} completion bash)
    complete -p early paddle.py python
    """
    lines = bash(code, here).splitlines()
    assert lines == [
        "complete -F _paddle_py early",
        "complete -F _paddle_py paddle.py",
        "complete -F _paddle_py_python python",
    ]


def test_bash_keeps_what_completed_python_before(here: Path) -> None:
    code = f"""
    _theirs() {{ :; }}
    complete -F _theirs python3
    _paddle_py_register
    source <({PADDLE} completion bash)
    echo "${{_paddle_py_before[python3]}}"
    """
    assert bash(code, here) == "_theirs\n"


class Terminal:
    """An interactive shell on a pseudo-terminal."""

    def __init__(self, argv: list[str], cwd: Path, environ: dict[str, str]) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], argv, environ)
        self._screen = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, pattern: str) -> str:
        """What came until the pattern did; typed text that comes later starts anew."""
        deadline = time.monotonic() + LIMIT_S
        while not re.search(pattern, self._screen):
            left = deadline - time.monotonic()
            assert left > 0, f"no /{pattern}/ in {self._screen!r}"
            if select.select([self._fd], [], [], left)[0]:
                self._screen += os.read(self._fd, 65536).decode(errors="replace")
        came, self._screen = self._screen, ""
        return came

    def close(self) -> None:
        os.close(self._fd)
        os.waitpid(self.pid, 0)


def test_tab_works_in_a_real_bash(here: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(here), "TERM": "dumb", "PS1": "> "}
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], here, environ)
    try:
        terminal.type("bind 'set enable-bracketed-paste off'\n")
        terminal.type(f"alias pd={shlex.quote(PADDLE)}; source <({PADDLE} completion bash)\n")
        terminal.type("echo rea''dy\n")
        terminal.wait_for("ready")
        for typed, completed in (
            ("paddle.py sta", "paddle.py status "),
            ("python paddle.py --mode=co", "python paddle.py --mode=collective "),
            ("./paddle.py --conf=my", r"./paddle.py --conf=my\ conf.py "),
            ("pd he", "pd help "),
            ("./paddle.py -p ws --entry=tr", "./paddle.py -p ws --entry=train.py "),
        ):
            terminal.type(typed + "\t")
            terminal.wait_for(re.escape(completed))
            terminal.type("\x15")  # Ctrl+U
        terminal.type("exit\n")
    finally:
        terminal.close()


# zsh


@pytest.mark.skipif(ZSH is None, reason="zsh is not installed")
def test_tab_works_in_a_real_zsh(here: Path) -> None:
    assert ZSH is not None
    environ = {"PATH": os.environ["PATH"], "HOME": str(here), "TERM": "dumb", "ZDOTDIR": str(here)}
    (here / ".zshrc").write_text(
        "PS1='> '; unsetopt zle_bracketed_paste prompt_sp 2>/dev/null\nautoload -U compinit && compinit -u -D\n"
        + f"source <({PADDLE} completion zsh)\nalias pd='{PADDLE}'\necho rea''dy\n"
    )
    terminal = Terminal([ZSH, "-i"], here, environ)
    try:
        terminal.wait_for("ready")
        for typed, completed in (
            ("paddle.py sta", "tus "),
            ("python paddle.py --mode=co", "llective "),
            ("./paddle.py --conf=my", r"\\ conf\.py"),
            ("pd he", "lp "),
            ("./paddle.py -p ws --entry=tr", r"ain\.py "),
        ):
            terminal.type(typed)
            terminal.wait_for(re.escape(typed[-4:]))
            terminal.type("\t")
            terminal.wait_for(completed)
            terminal.type("\x15")
        terminal.type("exit\n")
    finally:
        terminal.close()
