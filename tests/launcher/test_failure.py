# SPDX-License-Identifier: Apache-2.0
"""The first cause: what is told when several things fail at once."""

from __future__ import annotations

import pytest

from launcher.errors import ExitCode
from launcher.failure import Failure, Kind, describe_exit, first_cause, report

NODE = Failure(Kind.NODE_LOST, "node-b", "", "no word for 10 s")
PSERVER = Failure(Kind.PSERVER, "node-c", "pserver-2", "signal 9 (SIGKILL)", ("bye",))
TRAINER = Failure(
    Kind.TRAINER, "node-a", "trainer-0", "exit code 3", ("Traceback", "ValueError"), "ws/log/train.log"
)
LATER = Failure(Kind.TRAINER, "node-b", "trainer-1", "exit code 1")

# (what failed, in order of arrival; the cause; the exit code)
HISTORIES = [
    ([TRAINER], TRAINER, ExitCode.PROCESS_FAILED),
    ([TRAINER, LATER], TRAINER, ExitCode.PROCESS_FAILED),
    ([LATER, TRAINER], LATER, ExitCode.PROCESS_FAILED),
    ([TRAINER, PSERVER], PSERVER, ExitCode.LOST),
    ([TRAINER, PSERVER, LATER, NODE], NODE, ExitCode.LOST),
]


@pytest.mark.parametrize(("failures", "cause", "code"), HISTORIES)
def test_the_cause_is_what_explains_the_others(
    failures: list[Failure], cause: Failure, code: ExitCode
) -> None:
    assert first_cause(failures) is cause
    assert first_cause(failures).exit_code is code


def test_the_report_begins_with_the_cause_and_ends_with_its_echoes() -> None:
    assert report([TRAINER, LATER]) == [
        "FIRST ERROR: trainer 0 on node-a: exit code 3",
        "  the end of its log:",
        "    Traceback",
        "    ValueError",
        "  the whole log: ws/log/train.log",
        "  followed by: trainer 1 on node-b: exit code 1",
    ]


def test_a_lost_node_is_told_without_a_process() -> None:
    assert report([NODE]) == ["FIRST ERROR: node node-b: no word for 10 s"]


@pytest.mark.parametrize(
    ("code", "number", "text"),
    [
        (3, None, "exit code 3"),
        (None, 11, "signal 11 (SIGSEGV)"),
        (None, 63, "signal 63"),
        (0, None, "exit code 0"),
    ],
)
def test_an_exit_is_told_by_code_or_signal(code: int | None, number: int | None, text: str) -> None:
    assert describe_exit(code, number) == text
