# SPDX-License-Identifier: Apache-2.0
"""How the end of a job is told: the last screen's lines, `failure.json`, and warnings of what it went on without."""

from __future__ import annotations

import time
from pathlib import Path

from launcher.errors import ExitCode, LauncherError
from launcher.job import failure_file
from launcher.job.causes import judge
from launcher.job.failure_report import report
from launcher.nodes import incidents
from launcher.nodes.failure import Failure, Kind
from launcher.nodes.roster import Roster

_TRAINERS_TOLD = 4
_TOLD_ON_SCREEN = frozenset((ExitCode.USAGE, ExitCode.PREFLIGHT))  # no job came of it, nothing was collected


def explain(roster: Roster, job_id: str, code: ExitCode) -> list[str]:
    """Lines for a job that failed; writes `failure.json` too. Comes after the shutdown, which has news of its own."""
    verdict = judge([*roster.failures, *roster.late])
    log_dir = roster.collected / "log"
    problem = failure_file.write(
        log_dir,
        job_id=job_id,
        code=code,
        verdict=verdict,
        incidents=roster.incidents,
        stacks={name: record.stacks for name, record in roster.processes.items() if record.stacks},
    )
    lines = report(verdict, [incident.text for incident in roster.incidents])
    return [*lines, f"  {problem}" if problem else f"  for programs: {log_dir / failure_file.NAME}"]


def explain_error(error: LauncherError, roster: Roster, job_id: str) -> list[str]:
    """Lines for an error of the launcher; `failure.json` only once something was sent to nodes."""
    lines = f"FIRST ERROR: {error}".splitlines()
    if error.exit_code in _TOLD_ON_SCREEN:
        return lines
    node = str(getattr(error, "node", ""))
    cause = Failure(Kind.REFUSED, node, "", str(error).removeprefix(f"{node}: "), at=time.time())
    problem = failure_file.write(
        roster.collected / "log",
        job_id=job_id,
        code=error.exit_code,
        verdict=judge([cause]),
        incidents=roster.incidents,
        stacks={},
    )
    return [*lines, f"  {problem}"] if problem else lines


def warnings(roster: Roster) -> list[str]:
    """Lines for a job that was done without some of those that began it."""
    lost = [incident.text for incident in roster.incidents if incident.kind == incidents.LEFT_OUT]
    return [f"WARNING: {text}" for text in lost]


def discards(roster: Roster) -> list[str]:
    """A line for a job whose parameter servers discarded gradients: of whom how many, the most first."""
    found = [(count.discarded, count.pushed, trainer) for trainer, count in roster.pushes().items()]
    found = sorted((one for one in found if one[0]), key=lambda one: (-one[0], one[2]))
    if not found:
        return []
    told, rest = found[:_TRAINERS_TOLD], found[_TRAINERS_TOLD:]
    parts = [f"trainer {trainer}: {discarded} of {pushed}" for discarded, pushed, trainer in told]
    parts[0] += " gradients were discarded as too old"
    if rest:
        discarded, pushed, _ = map(sum, zip(*rest, strict=True))
        parts.append(f"{len(rest)} more trainers: {discarded} of {pushed}")
    return ["; ".join(parts)]


def forget_earlier(log_dir: Path) -> None:
    """Remove the `failure.json` of an earlier job."""
    (log_dir / failure_file.NAME).unlink(missing_ok=True)
