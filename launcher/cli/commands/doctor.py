# SPDX-License-Identifier: Apache-2.0
"""`paddle.py doctor`: the preflight of a job alone. Changes nothing anywhere and needs no workspace."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime

from launcher.config import arguments, settings
from launcher.config.arguments import Arguments
from launcher.config.flags import INIT_FLAGS, PSERVER_FLAGS
from launcher.errors import ExitCode, UsageError
from launcher.nodes import doctor_data, doctor_text, visit
from launcher.plan import plan
from launcher.screen.console import answer
from launcher.screen.writer import Sink
from launcher.system.installation import PROGRAM

USAGE = f"""\
{PROGRAM} doctor [--conf=FILE] [--hosts=HOST[,HOST]] [--hostfile=FILE]
      [--port=N] [--nics=NAMES] [--mode=v2|fluid|collective]
      [--job_workspace=DIR] [--json]

Checks every node of conf.py as a job would before it starts, and changes
nothing: login and host key, Python and modules, disks, clock, addresses, ways
between the nodes, ports, limits, GPUs. Exit 0, or 3 with what is wrong.

  --job_workspace=DIR   check this directory of the nodes too
  --json                everything as data

Every other option of a job that changes what is checked counts as well:
--allow_mismatch, --accept_new_host_keys, --nproc_per_node, --ports_num, ...
"""
WIDTH = 120
_COLUMNS = re.compile(r"[1-9][0-9]{0,4}")
_FLAGS = (INIT_FLAGS | PSERVER_FLAGS | {"nics"}) - {"config"}  # of a trainer; who gives it here means --conf
_PLACEHOLDER = (
    "--job_workspace=."  # a command line needs one of the two job options; this one is taken out again
)


def run(argv: Sequence[str]) -> ExitCode:
    """Run the command.

    Raises:
        UsageError: an argument is none of doctor's.
        ConfError: conf.py is wrong.
    """
    as_data = "--json" in argv
    given = _parse([one for one in argv if one != "--json"])
    resolved = settings.resolve(given, os.environ)
    planned = plan.build(resolved, plan.new_job_id(datetime.now(), os.urandom(plan.ENTROPY_BYTES)))
    begun = time.monotonic()
    examined = visit.examine(planned, lambda phase: None)
    took_s = time.monotonic() - begun
    if as_data:
        answer(doctor_data.document(examined, took_s))
    else:
        answer("\n".join(doctor_text.lines(examined, took_s, _width())))
    return ExitCode.PREFLIGHT if examined.verdict.problems else ExitCode.DONE


def _parse(argv: Sequence[str]) -> Arguments:
    has_job = any(one.split("=")[0] in ("-j", "--job_workspace") for one in argv)
    given = arguments.parse(argv if has_job else [*argv, _PLACEHOLDER])
    options = [one for one in given.passthrough if one.startswith("-")]
    unknown = [one for one in options if one[2:].partition("=")[0] not in _FLAGS]
    if unknown or (given.passthrough and not given.flags):
        raise UsageError(
            f"doctor knows no {(unknown or given.passthrough)[0]!r}; see `{PROGRAM} doctor --help`"
        )
    return given if has_job else dataclasses.replace(given, workspace=None)


def _width() -> int:
    """Columns of the screen; a file or pipe has as many as a wide one."""
    if Sink(sys.stdout).isatty():
        return shutil.get_terminal_size((WIDTH, 24)).columns
    given = os.environ.get("COLUMNS", "")
    return int(given) if _COLUMNS.fullmatch(given) else WIDTH
