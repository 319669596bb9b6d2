# SPDX-License-Identifier: Apache-2.0
"""The words that `paddle.py` takes in the place of a job: each is a module here with `run(argv) -> ExitCode`.

Its `USAGE` is what `--help` shows. A module is imported when its word is given and not before, so that none of them
makes a job start later.
"""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType, ModuleType

from paddle_cluster.config.spelling import nearest
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.screen.console import answer
from paddle_cluster.system.installation import PROGRAM

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "run a job, as without any word",
        "init": "begin: a conf.py and a workspace to try and to change",
        "status": "the jobs of this user, or one of them in detail",
        "attach": "the screen of a running job",
        "logs": "what the processes of a job wrote",
        "stop": "end a job, wherever it was started",
        "clean": "give back what ended jobs hold on the nodes",
        "checkpoints": "what jobs saved on the nodes, and which --resume takes",
        "dashboard": "all jobs of this user on a page in a browser",
        "hosts": "the nodes that a job would have, and what says so",
        "doctor": "check this machine, conf.py and the nodes",
        "completion": f"complete the words of {PROGRAM} in a shell",
        "help": f"how to use {PROGRAM}, or one of these words",
    }
)
"""Word -> what it does, in the order in which help shows them."""

JOB = "run"
"""The command that needs not be said."""

_JOB_OPTIONS = ("-p", "-j", "--job_dispatch_package", "--job_workspace")


def named(argv: Sequence[str]) -> str | None:
    """The command that a command line begins with, or None when it describes a job.

    Raises:
        UsageError: it begins with a word that is no command, and names no job that the word could be for.
    """
    word = argv[0] if argv else "-"
    if word in COMMANDS:
        return word
    if not word or _names_a_job(argv):
        return None
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
    raise UsageError(f"{word!r} is no command: {hint} (A job needs --job_dispatch_package={example}.)")


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
