# SPDX-License-Identifier: Apache-2.0
"""The command `paddle.py`: the only place that turns an error into an exit code.

--help and --dry_run need neither the network nor any installed package.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from launcher.cli import commands
from launcher.config import arguments, settings, workspace
from launcher.errors import ExitCode, LauncherError, UsageError
from launcher.plan import plan, plan_text
from launcher.screen.console import Console, answer, show
from launcher.system import signals
from launcher.text.wrapping import visible

VERSION = "0.1.0"

HELP = """\
usage: python paddle.py (-p DIR | -j DIR) [options] [--flag=value ...] [-- ...]
       paddle.py status|attach|logs|stop|clean|doctor|completion|help ...

Runs a script on all nodes of conf.py.

  -p, --job_dispatch_package=DIR  send DIR to every node and run it there
  -j, --job_workspace=DIR         run DIR, which is on the nodes already
  --dry_run             show every process of the job; connect to nothing
  --conf=FILE           the cluster (default: conf.py beside paddle.py)
  --hosts=HOST[,HOST]   these hosts instead of conf.py's: user@a,b:2222
  --engine=ENGINE       ssh (default), openmpi, slurm: what starts the nodes
  --entry=FILE          what runs: train.py (default), ./run.sh, -mpkg.module
  --mode=MODE           v2 (default), fluid; collective: any script at all
  --nproc_per_node=N    so many trainers on each node (default: 1)
  --env=NAME[=VALUE]    a variable for every process; --env_file=FILE: many
  --max_restarts=N      start a process that failed again, up to N times
  --detach              let the job go on by itself; attach brings it back
  -h, --help            this text; --version: the version

All other arguments reach the trainers as they are, those after a lone -- even
unread; flags of paddle.init become PADDLE_INIT_<NAME> too.

More: paddle.py help command-line (every option, exit codes), help configuration
(conf.py), help any-script (PyTorch, ...), help WORD. Alone, it lists all.
"""

_ARG_START, _ARG_END = 45, 46  # fields of /proc/self/stat, counted from the one after the command


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
    hide_values()
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
    from launcher.job import job  # half of all imports, which --help and --dry_run do without

    if resolved.detach:
        from launcher.cli import detach

        return detach.run(lambda console, first: job.run(resolved, console, first), resolved.state)
    console = Console()
    try:
        return job.run(resolved, console)
    finally:
        with signals.ignored():
            console.close()


def hide_values(options: tuple[str, ...] = ("--env",)) -> None:
    """Overwrites VALUE in `--env=NAME=VALUE` and `--env NAME=VALUE` with stars, as others see it (`ps`, /proc).

    Linux alone lets a process write there; anywhere else the line stays as it is.
    """
    try:
        fields = (
            Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        if not 0 < start < end or Path("/proc/self/cmdline").read_bytes() != ctypes.string_at(
            start, end - start
        ):
            return
    except (OSError, ValueError, IndexError):
        return
    for at, size in spans(ctypes.string_at(start, end - start), tuple(name.encode() for name in options)):
        ctypes.memset(start + at, ord("*"), size)


def spans(line: bytes, options: tuple[bytes, ...]) -> list[tuple[int, int]]:
    """(offset, length) of every value in a command line whose words end with NUL."""
    found = []
    at, is_value = 0, False
    for word in line.split(b"\0"):
        option, equals, rest = word.partition(b"=")
        pair_at = 0 if is_value else len(option) + len(equals)
        pair = word if is_value else rest if option in options and equals else b""
        name, has_value, value = pair.partition(b"=")
        if has_value and value:
            found.append((at + pair_at + len(name) + 1, len(value)))
        is_value = not is_value and word in options
        at += len(word) + 1
        if word == b"--" and not is_value:
            break
    return found
