# SPDX-License-Identifier: Apache-2.0
"""Hooks of the site's build: the version in the footer, the page of commands, and short code that does not wrap."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGE = "reference/commands.md"
_HEAD = """\
# Commands

The output of each command's `--help`. [Command line](../command-line.md) has every option of a
job, and the exit codes.
"""


_SHORT_CODE = re.compile(r"(?<!<pre>)(?<!</span>)<code>(?=[^<\n]{1,36}</code>)")


def on_page_content(html: str, **_: Any) -> str:
    """Mark short inline code, which must not be broken behind a hyphen, as in `--hosts`."""
    return _SHORT_CODE.sub('<code class="short">', html)


def on_config(config: Any) -> Any:
    """Put the version into the footer of every page."""
    sys.path.append(str(ROOT))
    from paddle_cluster.cli.commands.run import VERSION

    config.copyright = f"paddle-cluster {VERSION}, Apache-2.0. Not affiliated with PaddlePaddle."
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the page of commands."""
    from paddle_cluster.cli.commands import COMMANDS, usage

    parts = [_HEAD]
    for name, what in COMMANDS.items():
        parts.append(f"## {name}\n\n{what[0].upper()}{what[1:]}.\n\n```text\n{usage(name).rstrip()}\n```\n")
    files.append(File.generated(config, PAGE, content="\n".join(parts)))
    return files
