# SPDX-License-Identifier: Apache-2.0
"""Processes that could not be killed are named; of many thousands the rest is counted, and fits into a frame."""

from __future__ import annotations

import os

from paddle_node.contract.frames import encode
from paddle_node.linux.process_tree import FoundProcess, named


def test_of_very_many_processes_the_rest_is_counted() -> None:
    one = FoundProcess(os.getpid(), 1, 1, 1, "S", 1, 0, 0)
    fields = named([one] * 100_000, "a doubt")
    assert len(fields["left"]) == 1000
    assert fields["unsure"] == "a doubt; 99000 more could not be killed"
    assert encode("stopped", fields)


def test_few_processes_are_all_named() -> None:
    one = FoundProcess(os.getpid(), 1, 1, 1, "S", 1, 0, 0)
    fields = named([one], "")
    assert [pid for pid, _ in fields["left"]] == [os.getpid()]
    assert fields["unsure"] == ""
