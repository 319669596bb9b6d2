# SPDX-License-Identifier: Apache-2.0
"""The ssh config as one text: the user's and the system's, with the files that they include."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
MAX_DEPTH = 16  # as OpenSSH's
_KEYWORD = re.compile(r"\s*(include|host|match)(?:\s+|\s*=\s*)(.*?)\s*$", re.IGNORECASE)


def read_ssh_config(user_config: Path) -> str:
    """User's and system's configuration; for each keyword the first value counts.

    Raises:
        OSError: a file is there and cannot be read.
        ValueError: files include each other without end.
    """
    parts: list[str] = []
    for path, folder in ((user_config, user_config.parent), (SYSTEM_CONFIG, SYSTEM_CONFIG.parent)):
        if path.exists():
            parts += ["Match all", *_lines(path, folder, "Match all", 0)]
    return "\n".join(parts) + "\n"


def _lines(path: Path, folder: Path, section: str, depth: int) -> Iterator[str]:
    """Lines of a file, an Include replaced by what it names; `folder` is where relative names begin."""
    if depth > MAX_DEPTH:
        raise ValueError(f"{path}: files include each other without end")
    for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        keyword = _KEYWORD.match(line)
        if keyword is None:
            yield line
        elif keyword[1].lower() == "include":
            for pattern in keyword[2].split():
                name = os.path.expanduser(pattern.strip('"'))
                for included in sorted(glob.glob(os.path.join(folder, name))):
                    yield from _lines(Path(included), folder, section, depth + 1)
            yield section  # what follows belongs to the section that the Include stands in
        else:
            section = line
            yield line
