# SPDX-License-Identifier: Apache-2.0
"""The command `paddle.py`: the only place that turns an error into an exit code.

--help and --dry_run need neither the network nor any installed package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from paddle_cluster.cli import commands
from paddle_cluster.cli.commands import run
from paddle_cluster.errors import ExitCode, LauncherError, UsageError
from paddle_cluster.screen.console import show
from paddle_cluster.system import signals
from paddle_cluster.system.installation import IS_CHECKOUT, PROGRAM
from paddle_cluster.text.wrapping import visible


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
        if error.name is None or error.name.startswith(("paddle_cluster", "paddle_node")):
            raise
        remedy = "`sh run.sh` sets up .venv, then run .venv/bin/python paddle.py"
        if not IS_CHECKOUT:
            remedy = f"install paddle-cluster again, with what it needs ({sys.executable} -m pip check)"
        raise UsageError(f"this Python has no {error.name}; {remedy}") from error


def _run(argv: Sequence[str]) -> ExitCode:
    command = commands.named(argv)
    return run.run(argv) if command is None else commands.perform(command, argv[1:])
