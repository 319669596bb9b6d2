# SPDX-License-Identifier: Apache-2.0
"""What mkdocs asks while it builds the site: the page of commands, written from what `--help` prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGE = "reference/commands.md"
_HEAD = """\
# Commands

What each command says of itself with `--help`; [Command line](../command-line.md) has every
option of a job, and the exit codes.
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the page."""
    sys.path.append(str(ROOT))
    from paddle_cluster.cli.commands import COMMANDS, usage

    parts = [_HEAD]
    for name, what in COMMANDS.items():
        parts.append(f"## {name}\n\n{what[0].upper()}{what[1:]}.\n\n```text\n{usage(name).rstrip()}\n```\n")
    files.append(File.generated(config, PAGE, content="\n".join(parts)))
    return files
