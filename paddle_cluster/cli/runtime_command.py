# SPDX-License-Identifier: Apache-2.0
"""Runs commands of the package `paddle`, which nodes use, on this machine in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.system.installation import PROGRAM, RUNTIME_DIR

_REFUSED = 2  # argparse's


def perform(command: str, argv: Sequence[str]) -> ExitCode:
    """Run `paddle COMMAND ...` and return its exit code. Signals from the terminal reach both processes.

    Raises:
        UsageError: the arguments are invalid; the process has printed the reason.
    """
    if not argv:
        raise UsageError(f"{command}: arguments are missing; `{PROGRAM} {command} --help` lists them")
    path = os.pathsep.join([str(RUNTIME_DIR), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-P", f"-Xpaddle_program={PROGRAM}", "-m", "paddle", command, *argv],
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    if done.returncode == _REFUSED:
        return ExitCode.USAGE
    return ExitCode.DONE if done.returncode == 0 else ExitCode.PROCESS_FAILED
