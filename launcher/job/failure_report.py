# SPDX-License-Identifier: Apache-2.0
"""The last screen of a job that failed: the first cause, the end of its log, then what followed, named as such."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.job.causes import Verdict
from launcher.nodes.failure import Failure

TAIL_LINES = 20
LINE_LIMIT = 400
ECHOES = 8
NAMES = 3


def report(verdict: Verdict, history: Sequence[str] = ()) -> list[str]:
    """The lines of the last screen.

    Args:
        history: restarts and losses that the job survived before, one line each.
    """
    cause = verdict.cause
    lines = [f"FIRST ERROR: {cause.headline()}"]
    if cause.stacks:
        lines += ["  where it was:", *_indented(cause.stacks.splitlines()[:TAIL_LINES])]
    if cause.tail:
        lines += ["  the end of its log:", *_indented(cause.tail[-TAIL_LINES:])]
    if cause.log:
        lines.append(f"  the whole log: {cause.log}")
    if verdict.same:
        lines.append(f"  and {len(verdict.same)} more with the same last line: {_names(verdict.same)}")
    lines += [f"  failed too: {failure.headline()}" for failure in verdict.others[:ECHOES]]
    lines += [f"  echo: {echo.failure.headline()}: {echo.why}" for echo in verdict.echoes[:ECHOES]]
    for what, count in (("failures", len(verdict.others)), ("echoes", len(verdict.echoes))):
        if count > ECHOES:
            lines.append(f"  and {count - ECHOES} more {what}")
    if verdict.ended:
        lines.append(f"  ended by us: {_names(verdict.ended)}")
    return lines + [f"  before that: {line}" for line in history[-ECHOES:]]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line[:LINE_LIMIT]}" for line in lines]


def _names(failures: Sequence[Failure]) -> str:
    named = ", ".join(failure.name() for failure in failures[:NAMES])
    return named if len(failures) <= NAMES else f"{named} and {len(failures) - NAMES} more"
