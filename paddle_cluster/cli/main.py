# SPDX-License-Identifier: Apache-2.0
"""The entry point of `paddle.py`, and the only place that turns an error into an exit code.

--help and --dry_run need neither the network nor any installed package.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections.abc import Sequence

from paddle_cluster.cli.commands import COMMANDS, run, usage
from paddle_cluster.config.arguments import OF_JOBS
from paddle_cluster.config.entry import SCRIPTS
from paddle_cluster.config.values import near_miss, nearest
from paddle_cluster.errors import ExitCode, LauncherError, ThreadLimitError, UsageError
from paddle_cluster.screen.writer import answer, show
from paddle_cluster.system import signals
from paddle_cluster.system.installation import PROGRAM, packages_remedy
from paddle_cluster.text.wrapping import visible

_SYNONYMS = {
    "run": "resume restart submit launch start exec up apply create sbatch srun torchrun mpirun",
    "status": "ps list ls jobs queue squeue get describe show info top",
    "attach": "watch follow",
    "logs": "log tail",
    "stop": "kill cancel scancel delete down abort terminate",
    "clean": "rm remove purge gc prune",
    "doctor": "check verify validate preflight ping",
    "hosts": "nodes inventory",
    "init": "new setup",
    "help": "man docs",
    "--version": "version",
}
"""Command, or option -> its names in other programs."""
_OF_A_JOB = ("status", "attach", "logs", "stop")
_RESULTS = ("fetch", "download", "collect", "pull", "results", "output", "copy", "cp")
_MEANT = {name: command for command, names in _SYNONYMS.items() for name in names.split()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        argv: the arguments without the program's name; by default, those of this process.
    """
    try:
        with signals.raised():
            return int(_with_packages(sys.argv[1:] if argv is None else argv))
    except LauncherError as error:
        lines = str(error).splitlines()
        show("\n".join(f"{PROGRAM}: {visible(line)}" for line in lines), sys.stderr)
        return int(error.exit_code)
    except signals.StopRequest as stop:
        show(f"{PROGRAM}: ended by {stop}", sys.stderr)
        return int(stop.event.exit_code)


def _with_packages(argv: Sequence[str]) -> ExitCode:
    """Run the command, and explain what to do if this Python lacks a package, or the machine allows no thread."""
    try:
        return _run(argv)
    except RuntimeError as error:
        if ThreadLimitError.is_cause(error):
            raise ThreadLimitError from error
        raise
    except FileNotFoundError as error:
        try:
            os.getcwd()
        except FileNotFoundError:
            raise UsageError(
                "the current directory was removed; change to one that exists: cd DIR"
            ) from error
        raise
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(("paddle_cluster", "paddle_node")):
            raise
        raise UsageError(packages_remedy(error.name)) from error
    except PermissionError as error:
        if error.filename is None:
            raise
        raise UsageError(f"{error.filename}: permission denied; make it accessible to your user") from error


def _run(argv: Sequence[str]) -> ExitCode:
    command = named(argv)
    return run.run(argv) if command is None else perform(command, argv[1:])


def named(argv: Sequence[str]) -> str | None:
    """Return the name of the command with which a command line starts, or None if the command line describes a job.

    Raises:
        UsageError: the first argument is not a command, and either no job is named or it is a misspelled command.
    """
    argument = argv[0] if argv else "-"
    if argument in COMMANDS:
        return argument
    if not argument or argument.partition("=")[0] in OF_JOBS or argument.endswith(SCRIPTS):
        return None
    ours = _before_dashes(argv)
    if any(token.partition("=")[0] in OF_JOBS for token in ours):
        suggestion = _MEANT.get(argument) or next(
            (command for command in COMMANDS if near_miss(argument, command, fuzzy_from=3)), None
        )
        if suggestion is None:
            return None
        raise UsageError(f"unknown command {argument!r}: did you mean {suggestion}?")
    if argument.startswith("-"):
        late = next((one for one in ours if one in COMMANDS), None)
        if late is not None and not {"-h", "--help"} & set(ours):
            rest = shlex.join([one for one in argv if one != late])
            raise UsageError(f"the command must come first: {PROGRAM} {late} {rest}")
        return None
    from paddle_cluster.config.foreign import equivalent, is_command_line

    if is_command_line(argument) and (whole := equivalent(argv)):
        raise UsageError(f"unknown command {argument!r}: {whole}")
    meant = argv[1] if argument == "job" and argv[1:] else argument  # of Ray: job submit, job stop
    near = _MEANT.get(meant) or nearest(meant, tuple(COMMANDS))
    if near in _OF_A_JOB and len(argv) > 1 and _is_known(argv[-1]):
        raise UsageError(f"unknown command {argument!r}: give {PROGRAM} {near} {shlex.quote(argv[-1])}")
    hint = f"did you mean {near}?" if near else f"the commands are {', '.join(COMMANDS)}"
    if meant in ("resume", "restart"):
        hint += " Run the job's command again; --resume=latest continues from its checkpoints in --checkpoint_dir."
    if meant in _RESULTS:
        hint = "when a job ends, output/ of node 0, and files of --collect=PATTERN, are in output/ of the workspace."
    example = shlex.quote(argument) if os.path.isdir(argument) else "DIR"
    raise UsageError(f"unknown command {argument!r}: {hint} (A job needs --job_dispatch_package={example}.)")


def _is_known(job: str) -> bool:
    from paddle_cluster.control.store import find_or_none
    from paddle_cluster.system.state_dir import places

    return find_or_none(places(os.environ), job) is not None


def perform(name: str, argv: Sequence[str]) -> ExitCode:
    """Run a command with the arguments that follow its name, or print its usage; return its exit code."""
    if {"-h", "--help"} & set(_before_dashes(argv)):
        answer(usage(name))
        return ExitCode.DONE
    code: ExitCode = importlib.import_module(f"paddle_cluster.cli.commands.{name}").run(argv)
    return code


def _before_dashes(argv: Sequence[str]) -> Sequence[str]:
    return argv[: argv.index("--")] if "--" in argv else argv
