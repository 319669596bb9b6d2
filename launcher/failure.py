# SPDX-License-Identifier: Apache-2.0
"""Which of the things that went wrong was the first cause, and how it is told.

When one process dies, others die of it: a killed pserver makes every trainer fail, a lost node makes both fail
elsewhere. So failures that arrive together are ranked by what causes what, and only then by arrival.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from launcher.errors import ExitCode


class Kind(IntEnum):
    """What failed; a lower kind causes the higher ones, never the reverse."""

    NODE_LOST = 0
    PSERVER = 1
    TRAINER = 2


@dataclass(frozen=True)
class Failure:
    """One thing that went wrong.

    Attributes:
        process: "trainer-2", or empty when the node itself was lost.
        what: "exit code 3", "signal 9 (SIGKILL)", "no word for 10 s".
        tail: the last lines of the process's log.
        log: where the whole log lies on the submitting machine, or empty.
    """

    kind: Kind
    node: str
    process: str
    what: str
    tail: tuple[str, ...] = ()
    log: str = ""

    @property
    def exit_code(self) -> ExitCode:
        """5 for a node or pserver, 1 for a trainer."""
        return ExitCode.PROCESS_FAILED if self.kind is Kind.TRAINER else ExitCode.LOST

    def headline(self) -> str:
        """One line: who failed, where and how."""
        if not self.process:
            return f"node {self.node}: {self.what}"
        role, _, rank = self.process.partition("-")
        return f"{role} {rank} on {self.node}: {self.what}"


def first_cause(failures: Sequence[Failure]) -> Failure:
    """The failure that explains the others; failures are in order of arrival, at least one."""
    return min(failures, key=lambda failure: failure.kind)


def describe_exit(code: int | None, signal_number: int | None) -> str:
    """ "exit code 3", "signal 11 (SIGSEGV)"."""
    if signal_number:
        try:
            return f"signal {signal_number} ({signal.Signals(signal_number).name})"
        except ValueError:
            return f"signal {signal_number}"
    return f"exit code {code}"


def report(failures: Sequence[Failure]) -> list[str]:
    """The last lines of the screen: the first cause, the end of its log, and what followed from it."""
    cause = first_cause(failures)
    lines = [f"FIRST ERROR: {cause.headline()}"]
    if cause.tail:
        lines += ["  the end of its log:", *(f"    {line}" for line in cause.tail)]
    if cause.log:
        lines.append(f"  the whole log: {cause.log}")
    echoes = [failure for failure in failures if failure is not cause]
    lines += [f"  followed by: {echo.headline()}" for echo in echoes]
    return lines
