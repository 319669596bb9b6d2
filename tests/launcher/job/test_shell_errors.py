# SPDX-License-Identifier: Apache-2.0
"""Errors of a shell script's commands that do not reach its exit code."""

from __future__ import annotations

import pytest

from paddle_cluster.job.causes import hidden_errors

NO_SCRIPT = (
    "/usr/bin/python3: can't open file '/root/node_0/JOB20260102030405-a1b2c3/missing.py': [Errno 2] No"
)
NO_COMMAND = "./run.sh: line 2: cnoda: command not found"


@pytest.mark.parametrize(
    ("script", "line", "is_reported"),
    [
        ("#!/bin/bash\npython3 missing.py\necho ok\n", NO_SCRIPT, True),
        ("#!/bin/bash\npython3 missing.py || python3 other.py\n", NO_SCRIPT, False),
        ("#!/bin/bash\ncnoda activate x\npython3 train.py\n", NO_COMMAND, True),
        ("#!/bin/bash\nif cnoda; then\n  python3 train.py\nfi\n", NO_COMMAND, False),
        ("#!/bin/bash\ncnoda || true\n", NO_COMMAND, False),
        ("#!/bin/bash\n", NO_COMMAND, False),
        ("", NO_SCRIPT, False),
        ("#!/bin/bash\npython3 train.py\n", "loss 1", False),
    ],
)
def test_a_failed_command_is_reported_unless_the_script_expects_it(
    script: str, line: str, is_reported: bool
) -> None:
    lines = hidden_errors([("trainer-0", (line, "ok")), ("trainer-1", (line,))], script.splitlines())
    assert len(lines) == is_reported
    assert all(
        one.startswith("WARNING: trainer-0, trainer-1 exited with code 0, but a command") for one in lines
    )
