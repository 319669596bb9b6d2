# SPDX-License-Identifier: Apache-2.0
"""The command `paddle.py`: the only place that turns an error into an exit code.

--help and --dry_run need neither the network nor any installed package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime

from launcher.cli import commands, own_argv
from launcher.cli.help_text import HELP
from launcher.config import arguments, settings, workspace
from launcher.errors import ExitCode, LauncherError, UsageError
from launcher.plan import plan, plan_text
from launcher.screen.console import Console, answer, show
from launcher.system import signals
from launcher.text.wrapping import visible

VERSION = "0.1.0"


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
        show("\n".join(f"paddle.py: {visible(line)}" for line in lines), sys.stderr)
        return int(error.exit_code)
    except signals.StopRequest as stop:
        show(f"paddle.py: ended by {stop}", sys.stderr)
        return int(stop.event.exit_code)


def _with_packages(argv: Sequence[str]) -> ExitCode:
    """Run, and tell what to do when this Python lacks a package."""
    try:
        return _run(argv)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("launcher"):
            raise
        raise UsageError(
            f"this Python has no {error.name}; `sh run.sh` sets up .venv, then run .venv/bin/python paddle.py"
        ) from error


def _run(argv: Sequence[str]) -> ExitCode:
    command = commands.named(argv)
    if command is not None:
        return commands.run(command, argv[1:])
    own_argv.hide_values()
    given = arguments.parse(argv)
    if given.help or given.version:
        answer(HELP if given.help else f"paddle.py {VERSION}")
        return ExitCode.DONE
    resolved = settings.resolve(given, os.environ)
    workspace.check_workspace(resolved)
    if resolved.dry_run:
        job_id = plan.new_job_id(datetime.now(), os.urandom(plan.ENTROPY_BYTES))
        answer(plan_text.describe(plan.build(resolved, job_id)))
        return ExitCode.DONE
    return _run_job(resolved)


def _run_job(resolved: settings.Settings) -> ExitCode:
    from launcher.job import job  # brings fabric, which --help and --dry_run do without

    if resolved.detach:
        from launcher.cli import detach

        return detach.run(lambda console, first: job.run(resolved, console, first), resolved.state)
    console = Console()
    try:
        return job.run(resolved, console)
    finally:
        with signals.ignored():
            console.close()
