# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from launcher.control.tail import Followed


def test_lines_that_came_just_before_a_log_was_rotated_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("one\ntw")
    followed = Followed(log, "")
    assert followed.read() == ["one"]
    with log.open("a") as file:
        file.write("o\nthree\n")
    log.rename(tmp_path / "train.log.1")
    log.write_text("four\n")
    assert [line for _ in range(4) for line in followed.read()] == ["two", "three", "four"]
