# SPDX-License-Identifier: Apache-2.0
"""Evaluates the nodes' answers to `probe` and `reach`, before anything is changed on any node.

The functions are pure: they take replies, and return one table and a list of problems. A problem stops the job, a
warning does not. A finding shared by several nodes is reported in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from paddle_cluster.config.options import Mode, Wire
from paddle_cluster.nodes.checks import limits, machines, network, versions
from paddle_cluster.nodes.checks.reply import Demands, Reply
from paddle_cluster.nodes.checks.versions import RUNTIME_MODULES, SEALS
from paddle_cluster.nodes.findings import Finding, finding_lines
from paddle_cluster.text.sizes import duration, size_text
from paddle_node.contract.classes import dataclass

HEADERS = ("node", "result", "login", "address", "free", "clock", "python", "modules", "ports")
MOST_WRONG = 64  # rows; the number of further nodes with problems is printed below them
LISTED = 16  # up to this many nodes each have a row in a job's table

_FAMILIES: tuple[Callable[[Sequence[Reply], Demands], Iterable[Finding]], ...] = (
    machines.check,
    versions.check,
    limits.check_disks,
    network.check_ports,
    network.check_routes,
    limits.check,
    limits.check_clocks,
)


@dataclass(frozen=True)
class PreflightResult:
    """The result of preflight: a table with one row per node, and the findings.

    Attributes:
        red: indices of the rows with a problem.
        found: all findings, each about one node.
        problems, remarks: the findings as lines.
    """

    rows: tuple[tuple[str, ...], ...]
    red: frozenset[int]
    found: tuple[Finding, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...]


def asked_modules(mode: Mode, wire: Wire, bootstrap: bool = False) -> tuple[str, ...]:
    """Return the modules whose versions to query: modules that the job needs, and modules that make it faster."""
    needed = needed_modules(mode, bootstrap)
    return (*needed, SEALS[0]) if needed and wire is Wire.CURVE else needed


def needed_modules(mode: Mode, bootstrap: bool = False) -> tuple[str, ...]:
    """Return the modules that a job's Python needs; none for a collective job or with `bootstrap`."""
    return () if bootstrap or mode is Mode.COLLECTIVE else RUNTIME_MODULES


def judge(replies: Sequence[Reply], demands: Demands) -> PreflightResult:
    """Evaluate the answers of all nodes together; return the table and the findings."""
    found = tuple(
        dict.fromkeys(
            [*_reported(replies), *(finding for family in _FAMILIES for finding in family(replies, demands))]
        )
    )
    serious = [finding for finding in found if finding.serious]
    remarks = [finding for finding in found if not finding.serious]
    wrong = {finding.node for finding in serious}
    noted = {finding.node for finding in remarks}
    listed = [r for r in replies if len(replies) <= LISTED or r.name in wrong][:MOST_WRONG] or list(
        replies[:1]
    )
    return PreflightResult(
        rows=tuple(_row(reply, result(reply, wrong, noted)) for reply in listed),
        red=frozenset(index for index, reply in enumerate(listed) if reply.name in wrong),
        found=found,
        problems=finding_lines(serious, len(replies)),
        remarks=finding_lines(remarks, len(replies)),
    )


def _reported(replies: Sequence[Reply]) -> Iterator[Finding]:
    """Yield the problems that the nodes themselves reported."""
    for reply in replies:
        if reply.error:
            continue
        yield from (Finding(reply.name, what, text) for what, text in reply.answer.problems)
        yield from (Finding(reply.name, what, text, serious=False) for what, text in reply.answer.remarks)


def result(reply: Reply, wrong: AbstractSet[str], noted: AbstractSet[str]) -> str:
    """Return the text for a node's row in one or two words, such as "ok"; the findings contain the details."""
    if reply.error:
        return reply.outcome
    if reply.name in wrong:
        return "FAIL"
    return "warning" if reply.name in noted else "ok"


def _row(reply: Reply, result: str) -> tuple[str, ...]:
    if reply.error:
        return (reply.name, result, *[""] * (len(HEADERS) - 2))
    answer = reply.answer
    return (
        reply.name,
        result,
        duration(reply.login_s),
        answer.address,
        size_text(answer.free_bytes),
        clock(reply),
        answer.python_version or "missing",
        ", ".join(f"{name} {version or 'missing'}" for name, version in answer.modules.items()),
        network.busy_ports(answer.busy_ports),
    )


def clock(reply: Reply) -> str:
    """Format the offset of a node's clock and its uncertainty."""
    if reply.clock_error_s == float("inf"):
        return f"{reply.clock_offset_s:+.1f} s"
    if max(abs(reply.clock_offset_s), reply.clock_error_s) < 1:
        return f"{reply.clock_offset_s * 1000:+.1f}±{reply.clock_error_s * 1000:.1f} ms"
    return f"{reply.clock_offset_s:+.1f}±{reply.clock_error_s:.1f} s"
