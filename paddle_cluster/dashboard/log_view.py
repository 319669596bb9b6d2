# SPDX-License-Identifier: Apache-2.0
"""A job's merged log for the page: its last lines, new lines, and search results."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from typing import Any

from paddle_cluster.control import log_lines
from paddle_cluster.control.log_lines import LineFilter
from paddle_cluster.control.store import KnownJob
from paddle_cluster.control.tail import Followed
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.wrapping import visible

FIRST = 200  # initial lines of the page
AT_ONCE = 300  # maximum number of new lines per update
READS = 16  # maximum number of reads, of one mebibyte each, per update
LINE_LIMIT = 2000  # characters
FOUND = 500  # maximum number of search results
SEARCH_S = 5.0
PART = 4000  # lines of a download that are sent together


class LogTail:
    """The position of one page in a job's growing log."""

    def __init__(self, job: KnownJob) -> None:
        self._followed = Followed(log_lines.path_of(job))

    def first(self, job: KnownJob) -> list[str]:
        """Return the last lines of the log; `more` continues after them."""
        lines = _wanted(job).backwards(self._followed, time.monotonic() + SEARCH_S)
        return [_shown(line) for line in itertools.islice(lines, FIRST)][::-1]

    def more(self, job: KnownJob) -> tuple[list[str], int]:
        """Return the newest lines added since the last call, and the number of older ones that are omitted."""
        came: list[str] = []
        left_out = 0
        for _ in range(READS):
            lines = self._followed.read()
            came += lines
            left_out += max(0, len(came) - AT_ONCE)
            came = came[-AT_ONCE:]
            if not lines:
                break
        wanted = _wanted(job)
        return [_shown(line) for line in came if wanted.has(line)], left_out


def search(job: KnownJob, text: str, process: str) -> dict[str, Any]:
    """Return the last lines that contain a text, ignoring case, as the page shows them.

    Args:
        text: plain text; regular expressions are not supported, because some take forever.
        process: a process or role, as for `paddle.py logs --proc`; empty: all processes.
    """
    if process and not log_lines.PROCESS.fullmatch(process):
        return {
            "lines": [],
            "told": f"{visible(process)!r}: expected a process (such as trainer-2), a role, or launcher",
        }
    begun, ended = log_lines.span(job)
    wanted = LineFilter(
        begun, ended, process, "", re.compile(re.escape(text), re.IGNORECASE) if text else None
    )
    deadline = time.monotonic() + SEARCH_S
    lines = wanted.backwards(Followed(log_lines.path_of(job)), deadline)
    found = [_shown(line) for line in itertools.islice(lines, FOUND)]
    told = ""
    if len(found) == FOUND:
        told = f"the last {FOUND}; there may be more"
    elif time.monotonic() >= deadline:
        told = (
            f"searched for {SEARCH_S:.0f} s without reaching older lines; {PROGRAM} logs --grep "
            "searches everything"
        )
    return {"lines": found[::-1], "told": told}


def whole(job: KnownJob, process: str) -> Iterator[bytes]:
    """Yield the complete log of a job, process or role as UTF-8, in chunks of a few thousand lines."""
    lines = log_lines.lines_of(job, process)
    while part := list(itertools.islice(lines, PART)):
        yield "".join(f"{line}\n" for line in part).encode("utf-8", "backslashreplace")


def _wanted(job: KnownJob) -> LineFilter:
    return LineFilter(*log_lines.span(job))


def _shown(line: str) -> str:
    return visible(line[:LINE_LIMIT]) + (" ..." if len(line) > LINE_LIMIT else "")
