# SPDX-License-Identifier: Apache-2.0
"""Takes the values of --env off this process's command line as others see it (`ps`, /proc/<pid>/cmdline).

Linux alone lets a process write there; anywhere else the line stays as it is.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

_ARG_START, _ARG_END = 45, 46  # fields of /proc/self/stat, counted from the one after the command


def hide_values(options: tuple[str, ...] = ("--env",)) -> None:
    """Overwrites VALUE in `--env=NAME=VALUE` and `--env NAME=VALUE` with stars."""
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
