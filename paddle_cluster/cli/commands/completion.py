# SPDX-License-Identifier: Apache-2.0
"""`paddle.py completion bash|zsh`: prints the script that completes paddle.py in a shell.

The script runs `paddle.py completion words -- WORD...` for the words themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from paddle_cluster.cli import manual
from paddle_cluster.cli.commands import COMMANDS, JOB, usage
from paddle_cluster.cli.completion_scripts import script
from paddle_cluster.config.command_arguments import options
from paddle_cluster.config.flags import INIT_FLAGS, LAUNCHER_FLAGS
from paddle_cluster.config.options import OPTIONS, Option
from paddle_cluster.control import store
from paddle_cluster.errors import ExitCode, LauncherError, UsageError
from paddle_cluster.screen.console import answer
from paddle_cluster.system import state_dir
from paddle_cluster.system.installation import COMMAND, PROGRAM

USAGE = f"""\
{PROGRAM} completion bash|zsh

Prints the script that completes the words of {PROGRAM} when Tab is
pressed. In ~/.bashrc, after your aliases:

  source <({COMMAND} completion bash)

or in ~/.zshrc, after compinit:

  source <({COMMAND} completion zsh)
"""
SHELLS = ("bash", "zsh")
LISTED = 200  # files of a directory


def run(argv: Sequence[str]) -> ExitCode:
    """Prints a shell's script, or what may stand at the end of a command line.

    Args:
        argv: a shell's name; or `words`, `--` and the words after paddle.py, the last one unfinished.

    Raises:
        UsageError: it is neither.
    """
    if list(argv[:2]) == ["words", "--"]:
        offer = offers(argv[2:], os.environ)
        answer("\n".join([offer.kind, *offer.words]))
        return ExitCode.DONE
    if len(argv) != 1 or argv[0] not in SHELLS:
        got = " ".join(argv) or "nothing"
        raise UsageError(
            f"completion: expected bash or zsh, got {got}; then: source <({COMMAND} completion bash)"
        )
    answer(script(argv[0]))
    return ExitCode.DONE


class OfferKind(StrEnum):
    """Who finds the words: this module, or the shell."""

    WORDS = "words"
    FILES = "files"
    DIRS = "dirs"


class Offer(NamedTuple):
    """What is offered for the last word; words are whole, with a `--option=` that the word begins with."""

    kind: OfferKind
    words: tuple[str, ...] = ()


_OF_A_JOB = ("status", "attach", "logs", "stop", "checkpoints", "dashboard")
_RUNNING_ONLY = ("attach", "stop")


class Line(NamedTuple):
    """A command line as far as it is written.

    Attributes:
        before: whole words.
        last: the word that is being written, perhaps empty.
    """

    before: tuple[str, ...]
    last: str
    environ: Mapping[str, str]


def offers(words: Sequence[str], environ: Mapping[str, str]) -> Offer:
    """What may stand for the last of these words.

    Args:
        words: what follows `paddle.py`; the last one is being written.
    """
    line = Line(tuple(words[:-1]), words[-1] if words else "", environ)
    command = line.before[0] if line.before else ""
    if command == JOB:
        line, command = line._replace(before=line.before[1:]), ""
    if "--" in line.before:
        return Offer(OfferKind.FILES)
    if command in COMMANDS:
        return _after_command(command, line)
    option, prefix = _open_option(line)
    if option is not None:
        return _matching(_value(option, line), prefix, line.last)
    if line.last.startswith("-"):
        return _matching(Offer(OfferKind.WORDS, tuple(_options(line))), "", line.last)
    return (
        _matching(Offer(OfferKind.WORDS, tuple(COMMANDS)), "", line.last)
        if not words[:-1]
        else Offer(OfferKind.FILES)
    )


def _after_command(command: str, line: Line) -> Offer:
    option, prefix = _open_option(line)
    if option is not None:
        return _matching(_value(option, line), prefix, line.last)
    if command == "init" and not line.last.startswith("-"):
        return Offer(OfferKind.DIRS)
    if command in _OF_A_JOB and not line.last.startswith("-"):
        words = _jobs(line, running=command in _RUNNING_ONLY)
    else:
        known = options(usage(command))
        words = [f"{name}=" if known[name] and name.startswith("--") else name for name in known]
        words += _topics() if command == "help" else SHELLS if command == "completion" else ()
    return _matching(Offer(OfferKind.WORDS, tuple(words)), "", line.last)


def _open_option(line: Line) -> tuple[Option | None, str]:
    """The option whose value is being written, and what of the last word comes before the value."""
    name, equals, _ = line.last.partition("=")
    if equals and name in _KNOWN:
        return _KNOWN[name], f"{name}="
    option = _KNOWN.get(line.before[-1] if line.before else "")
    return (option, "") if option is not None and option.metavar else (None, "")


def _options(line: Line) -> Iterator[str]:
    """Options that may still be given, then flags of paddle.init once a letter of one is written."""
    given = {word.partition("=")[0] for word in line.before}
    for option in OPTIONS:
        if option.repeats or f"--{option.name}" not in given:
            yield option.written.partition("=")[0] + ("=" if option.metavar else "")
    if len(line.last) > len("--"):
        yield from (f"--{name}=" for name in sorted(INIT_FLAGS - LAUNCHER_FLAGS))


def _matching(offer: Offer, prefix: str, last: str) -> Offer:
    words = (prefix + word for word in offer.words)
    return Offer(offer.kind, tuple(word for word in words if word.startswith(last)))


# Values


def _jobs(line: Line, running: bool = False) -> list[str]:
    try:
        found = store.all_jobs(state_dir.places(line.environ))
    except (OSError, LauncherError):
        return []
    return [job.job_id for job in found if not (running and job.ended)]


def _topics() -> list[str]:
    try:
        return [page.topic for page in manual.pages()]
    except LauncherError:
        return []


def _in_package(line: Line, dirs_only: bool) -> Offer:
    """Files of the workspace that the line dispatches."""
    package = _value_of(line, "--job_dispatch_package", "-p")
    written = line.last.partition("=")[2] if line.last.startswith("--") else line.last
    folder = written.rpartition("/")[0]
    if package is None:
        return Offer(OfferKind.WORDS)
    try:
        found = sorted(os.scandir(Path(package).expanduser() / folder), key=lambda entry: entry.name)
        words = [
            f"{folder}/{entry.name}".lstrip("/") + ("/" if entry.is_dir() else "")
            for entry in found[:LISTED]
            if (entry.is_dir() or not dirs_only) and not entry.name.startswith((".", "__"))
        ]
    except OSError:
        return Offer(OfferKind.WORDS)
    return Offer(OfferKind.WORDS, tuple(words))


def _value_of(line: Line, name: str, short: str) -> str | None:
    for index, word in enumerate(line.before):
        if word in (name, short) and index + 1 < len(line.before):
            return line.before[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _value(option: Option, line: Line) -> Offer:
    """What an option may be given: by its own row of the table below, else by its choices or its kind of value."""
    if option.name in _OWN:
        return _OWN[option.name](line)
    kind = {"FILE": OfferKind.FILES, "DIR": OfferKind.DIRS}.get(option.metavar, OfferKind.WORDS)
    return Offer(kind, option.choices)


_OWN: Mapping[str, Callable[[Line], Offer]] = {
    "job_workspace": lambda line: Offer(OfferKind.WORDS, tuple(_jobs(line))),
    "entry": lambda line: _in_package(line, dirs_only=False),
    "shard_dirs": lambda line: _in_package(line, dirs_only=True),
    "env": lambda line: Offer(OfferKind.WORDS, tuple(sorted(line.environ))),
}
_PROC = Option("proc", "", "NAME", choices=("launcher", "pserver", "trainer"))  # of logs
_KNOWN = {f"--{one.name}": one for one in (*OPTIONS, _PROC)} | {
    f"-{one.short}": one for one in OPTIONS if one.short
}
