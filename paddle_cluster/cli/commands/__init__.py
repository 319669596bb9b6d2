# SPDX-License-Identifier: Apache-2.0
"""The commands of `paddle.py`: each is a module of this package with `run(argv) -> ExitCode`.

Its `USAGE` is what `--help` shows. A module is imported only when its command is given, so that no command delays the
start of a job.
"""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType, ModuleType

from paddle_cluster.config.spelling import near_miss, nearest
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.screen.console import answer
from paddle_cluster.system.installation import PROGRAM

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "run a job (the default command)",
        "init": "create a sample conf.py and workspace",
        "status": "list your jobs, or show one in detail",
        "attach": "follow a running job",
        "logs": "print the logs of a job",
        "stop": "stop a job, also one started on another terminal",
        "clean": "remove the directories of ended jobs from the nodes",
        "checkpoints": "list saved checkpoints, and the one that --resume would load",
        "dashboard": "show your jobs in a browser",
        "hosts": "list the nodes of a job, and where each setting comes from",
        "doctor": "check this machine, conf.py and the nodes",
        "completion": "print a script for tab completion in a shell",
        "help": "list the manual's pages, or explain a page, command, option or name",
    }
)
"""Command -> its summary, in the order in which help shows them."""

JOB = "run"
"""The command that may be left out."""

_JOB_OPTIONS = ("-p", "-j", "--job_dispatch_package", "--job_workspace")


def named(argv: Sequence[str]) -> str | None:
    """Return the command that a command line begins with, or None when it describes a job.

    Raises:
        UsageError: its first word is not a command, and either it names no job or the word is a misspelled command.
    """
    word = argv[0] if argv else "-"
    if word in COMMANDS:
        return word
    if not word:
        return None
    if _names_a_job(argv):
        meant = next((command for command in COMMANDS if near_miss(word, command, fuzzy_from=3)), None)
        if meant is None:
            return None
        raise UsageError(
            f"unknown command {word!r}: did you mean {meant}? (To pass it to your script, put it after --.)"
        )
    if word.startswith("-"):
        ours = argv[: argv.index("--")] if "--" in argv else argv
        late = next((one for one in ours if one in COMMANDS), None)
        if late is not None and not {"-h", "--help"} & set(ours):
            rest = shlex.join([one for one in argv if one != late])
            raise UsageError(f"the command comes first: {PROGRAM} {late} {rest}")
        return None
    near = nearest(word, tuple(COMMANDS))
    hint = f"did you mean {near}?" if near else f"the commands are {', '.join(COMMANDS)}"
    example = shlex.quote(word) if os.path.isdir(word) else "DIR"
    raise UsageError(f"unknown command {word!r}: {hint} (A job needs --job_dispatch_package={example}.)")


def perform(name: str, argv: Sequence[str]) -> ExitCode:
    """Run a command with the arguments that follow its name, or show how it is used."""
    ours = argv[: argv.index("--")] if "--" in argv else argv
    if "--help" in ours or "-h" in ours:
        answer(usage(name))
        return ExitCode.DONE
    code: ExitCode = _module(name).run(argv)
    return code


def usage(name: str) -> str:
    """How a command is used, as text for people."""
    return str(_module(name).USAGE)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"paddle_cluster.cli.commands.{name}")


def _names_a_job(argv: Sequence[str]) -> bool:
    ours = argv[: argv.index("--")] if "--" in argv else argv
    return any(token.partition("=")[0] in _JOB_OPTIONS for token in ours)
