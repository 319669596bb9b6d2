# SPDX-License-Identifier: Apache-2.0
"""The commands of `paddle.py`. Each command is a module of this package with `run(argv) -> ExitCode`.

`--help` prints the module's `USAGE`. A module is imported only when its command is given, so that other commands do not
delay the start of a job.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "run a job (the default command)",
        "init": "create a sample conf.py and workspace",
        "status": "list your jobs, or show one in detail",
        "attach": "follow a running job",
        "logs": "print the logs of a job",
        "stop": "stop a job, even one started in another terminal",
        "clean": "remove the directories of ended jobs from the nodes",
        "checkpoints": "list saved checkpoints, and the one that --resume would load",
        "tables": "list, export and import growing tables",
        "serve": "answer lookups of a running job's growing tables",
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


def usage(name: str) -> str:
    """Return the usage text of a command, which --help prints."""
    return str(importlib.import_module(f"{__name__}.{name}").USAGE)
