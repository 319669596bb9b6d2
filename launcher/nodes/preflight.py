# SPDX-License-Identifier: Apache-2.0
"""Judges what the nodes answered to `probe` and `reach`, before anything is changed anywhere.

Pure: replies in, one table and the list of problems out. A problem stops the job, a remark does not. What several
nodes have in common is told in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from launcher.config.options import Mode
from launcher.nodes.checks import clocks, disks, limits, machines, ports, routes, versions
from launcher.nodes.checks.reply import Demands, Reply
from launcher.nodes.checks.versions import RUNTIME_MODULES
from launcher.nodes.findings import Finding, told
from launcher.text.sizes import duration, megabytes

HEADERS = ("node", "login", "python", "modules", "address", "ports", "free", "clock", "result")
LISTED = 16  # nodes, up to which the table of a job has a row for every one

_FAMILIES: tuple[Callable[[Sequence[Reply], Demands], Iterable[Finding]], ...] = (
    machines.check,
    versions.check,
    disks.check,
    ports.check,
    routes.check,
    limits.check,
    clocks.check,
)


@dataclass(frozen=True)
class PreflightVerdict:
    """The table, and what is wrong: rows in `red` have a problem.

    Attributes:
        found: every finding, of one node each.
        problems, remarks: the same as lines.
    """

    rows: tuple[tuple[str, ...], ...]
    red: frozenset[int]
    found: tuple[Finding, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...]


def needed_modules(mode: Mode) -> tuple[str, ...]:
    """What a job's Python must have; a collective job may be any script."""
    return () if mode is Mode.COLLECTIVE else RUNTIME_MODULES


def judge(replies: Sequence[Reply], demands: Demands) -> PreflightVerdict:
    """Judge all nodes together."""
    found = tuple(
        dict.fromkeys(
            [*_said(replies), *(finding for family in _FAMILIES for finding in family(replies, demands))]
        )
    )
    serious = [finding for finding in found if finding.serious]
    remarks = [finding for finding in found if not finding.serious]
    wrong: dict[str, list[str]] = {}
    for finding in serious:
        wrong.setdefault(finding.node, []).append(
            f"{finding.what}: {finding.text}" if finding.what else finding.text
        )
    listed = [r for r in replies if len(replies) <= LISTED or r.name in wrong] or list(replies[:1])
    return PreflightVerdict(
        rows=tuple(_row(reply, wrong.get(reply.name, ())) for reply in listed),
        red=frozenset(index for index, reply in enumerate(listed) if reply.name in wrong),
        found=found,
        problems=told(serious, len(replies)),
        remarks=told(remarks, len(replies)),
    )


def _said(replies: Sequence[Reply]) -> Iterator[Finding]:
    """What nodes found out by themselves."""
    for reply in replies:
        if reply.error:
            continue
        yield from (Finding(reply.name, what, text) for what, text in reply.answer.problems)
        yield from (Finding(reply.name, what, text, serious=False) for what, text in reply.answer.remarks)


def _row(reply: Reply, wrong: Sequence[str]) -> tuple[str, ...]:
    if reply.error:
        return (reply.name, "failed", *[""] * 6, reply.error)
    answer = reply.answer
    return (
        reply.name,
        duration(reply.login_s),
        answer.python_version or "missing",
        ", ".join(f"{name} {version or 'missing'}" for name, version in answer.modules.items()),
        answer.address,
        ports.busy(answer.busy_ports),
        megabytes(answer.free_bytes),
        clock(reply),
        "; ".join(wrong) or "ok",
    )


def clock(reply: Reply) -> str:
    """The offset of a node's clock, with what it may be wrong by."""
    if reply.clock_error_s == float("inf"):
        return f"{reply.clock_offset_s:+.1f} s"
    if max(abs(reply.clock_offset_s), reply.clock_error_s) < 1:
        return f"{reply.clock_offset_s * 1000:+.1f}±{reply.clock_error_s * 1000:.1f} ms"
    return f"{reply.clock_offset_s:+.1f}±{reply.clock_error_s:.1f} s"
