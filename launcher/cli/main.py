# SPDX-License-Identifier: Apache-2.0
"""The command `paddle.py`: the only place that turns an error into an exit code.

--help and --dry_run need neither the network nor any installed package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from launcher.cli import commands
from launcher.cli.commands import run
from launcher.errors import ExitCode, LauncherError, UsageError
from launcher.screen.console import show
from launcher.system import signals
from launcher.system.installation import IS_CHECKOUT, PROGRAM
from launcher.text.wrapping import visible


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code.

    Args:
        argv: the arguments without the program's name; those of this process when left out.
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
    """Run, and tell what to do when this Python lacks a package."""
    try:
        return _run(argv)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("launcher"):
            raise
        remedy = "`sh run.sh` sets up .venv, then run .venv/bin/python paddle.py"
        if not IS_CHECKOUT:
            remedy = f"install paddle-cluster again, with what it needs ({sys.executable} -m pip check)"
        raise UsageError(f"this Python has no {error.name}; {remedy}") from error


def _run(argv: Sequence[str]) -> ExitCode:
    command = commands.named(argv)
    return run.run(argv) if command is None else commands.perform(command, argv[1:])
