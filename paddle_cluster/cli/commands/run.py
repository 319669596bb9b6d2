# SPDX-License-Identifier: Apache-2.0
"""`paddle.py run`, or no command: runs a job. --help, --dry_run and usage errors need no network or package."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime

from paddle_cluster.cli.commands import COMMANDS
from paddle_cluster.config import arguments, workspace
from paddle_cluster.config.options import COMMON, OPTIONS, Option
from paddle_cluster.config.resolve import resolve
from paddle_cluster.config.settings import Settings
from paddle_cluster.engines import engine
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.screen.console import Console
from paddle_cluster.screen.writer import answer
from paddle_cluster.system import signals
from paddle_cluster.system.installation import COMMAND, PROGRAM
from paddle_cluster.system.installation import argv as own_argv
from paddle_cluster.system.state_dir import places, unusable_home
from paddle_node.linux import proc

VERSION = "0.2.0"

_REST = f"""\
Other arguments are passed to the trainers if the script reads them, as is all
after --. Flags of paddle.init are also set as PADDLE_INIT_<NAME>.

More: {PROGRAM} help command-line (every option, exit codes),
help configuration (conf.py), help any-script (PyTorch, ...), help: all pages.
"""


def short_help() -> str:
    """Return the text of --help without a command, which fits one screen."""
    import textwrap

    return f"""\
usage: {COMMAND} (-p DIR | -j DIR) [options] [--flag=value ...] [-- ...]
{textwrap.fill("commands: " + ", ".join(COMMANDS), 80, subsequent_indent="          ")}

{_help_lines(COMMON)}"""


def _help_lines(options: Sequence[Option]) -> str:
    heads = [f"-{one.short}, {one.written}" if one.short else one.written for one in options]
    lines = [f"  {head:<20}  {one.help}" for head, one in zip(heads, options, strict=True)]
    return "\n".join(["Runs a script on all nodes of conf.py.", *lines, "", _REST])


USAGE = f"""\
{PROGRAM} run (-p DIR | -j DIR) [options] [--flag=value ...] [-- ...]

{_help_lines(OPTIONS)}"""


def run(argv: Sequence[str]) -> ExitCode:
    """Run a job, or with --dry_run print its plan; return the job's exit code.

    Raises:
        LauncherError: the job cannot run, or did not end successfully.
    """
    hide_values()
    try:
        given = arguments.parse(argv)
    except UsageError as error:
        from paddle_cluster.config.foreign import equivalent

        whole = _rerun(argv) or equivalent(argv)
        raise UsageError("\n".join([str(error), *[whole] * bool(whole)])) from error
    if given["help"] or given["version"]:
        answer(short_help() if given["help"] else f"{PROGRAM} {VERSION}")
        return ExitCode.DONE
    if given["job_dispatch_package"] is not None:
        # before its conf.py is searched
        workspace.check_directory(given["job_dispatch_package"], given.passthrough)
    resolved = resolve(given, os.environ)
    workspace.check_workspace(resolved)
    passed_on = given.passthrough[: given.before_dashes]
    job = resolved.job
    if given.passthrough and job.package:
        from paddle_cluster.config.unread import repeated, unread

        problem = unread(passed_on, job.entry, job.package, job.mode, len(resolved.cluster.trainers))
        if problem := problem or repeated(given.passthrough[given.before_dashes :], job.entry):
            raise UsageError(problem)
    if resolved.dry_run:
        answer(_dry_run(resolved))
        return ExitCode.DONE
    chosen = engine.entry(resolved)
    if resolved.detach and (where := chosen.submitted(own_argv(), argv, resolved)):
        answer(where)
        return ExitCode.DONE
    return _run_job(given, resolved)


def _rerun(argv: Sequence[str]) -> str:
    """Return the options of the job whose name or ID is the only argument; "" if there is none."""
    from paddle_cluster.control import store

    jobs = store.all_jobs(places(os.environ)) if len(argv) == 1 else []
    job = next((job for job in jobs if argv[0] in (job.job_id, job.record.name)), None)
    if job is None:
        return ""
    changed = {"job_dispatch_package": job.record.source}  # whatever the current directory is
    given = [
        name if value == "True" else f"{name}={changed.get(key, value.replace(', ', ','))}"
        for key, value, name in job.record.options
        if name.startswith("--")
    ]
    command = f"{COMMAND} run {shlex.join(given)}".replace("--hostfile=", "--hosts=")
    return f"{argv[0]} is a job; give its options again, and its script's arguments, which are not stored: {command}"


def _dry_run(resolved: Settings) -> str:
    """Print the plan of a job without running it.

    The imports are inside this function, because no other command needs them.
    """
    from paddle_cluster.plan import plan, plan_text

    planned = plan.build(resolved, plan.new_job_id(datetime.now(), os.urandom(plan.ENTROPY_BYTES)))
    files: list[str] = []
    if resolved.job.package is not None:
        with contextlib.suppress(ModuleNotFoundError):  # only .paddleignore needs a library
            from paddle_cluster.files import payload

            files = payload.listed(planned)
    return engine.entry(resolved).described(plan_text.describe(planned, files), planned)


def _run_job(given: arguments.Arguments, resolved: Settings) -> ExitCode:
    from paddle_cluster.job import beginning  # half of all imports; --help and --dry_run skip it

    if resolved.detach:
        from paddle_cluster.cli import detach

        return detach.run(lambda console, first: beginning.run(resolved, console, first), resolved.state)
    console = Console(as_json=resolved.json)
    try:
        if warning := unusable_home(os.environ):
            console.note(warning)
        with engine.entry(resolved).allocation(resolved, console.note) as found:
            if found:
                os.environ.update(found)  # srun reads them there
                resolved = resolve(given, os.environ)
            return beginning.run(resolved, console)
    finally:
        with signals.ignored():
            console.close()


def hide_values(options: tuple[str, ...] = ("--env",)) -> None:
    """Overwrite VALUE in `--env=NAME=VALUE` and `--env NAME=VALUE` with asterisks, to hide it from `ps`.

    Only Linux lets a process overwrite its command line; on other systems it stays unchanged.
    """
    if not any(one.partition("=")[0] in options for one in sys.orig_argv):
        return
    import ctypes

    try:
        fields = proc.stat("self")
        start, end = int(fields[proc.ARG_START]), int(fields[proc.ARG_END])
        if not 0 < start < end or proc.read("/proc/self/cmdline") != ctypes.string_at(start, end - start):
            return
    except (OSError, ValueError, IndexError):
        return
    for at, size in spans(ctypes.string_at(start, end - start), tuple(name.encode() for name in options)):
        ctypes.memset(start + at, ord("*"), size)


def spans(line: bytes, options: tuple[bytes, ...]) -> list[tuple[int, int]]:
    """Return (offset, length) of each option value to hide, in a command line whose arguments end with NUL."""
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
