# SPDX-License-Identifier: Apache-2.0
"""Two jobs never collect into one directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.system.workspace_lock import locked

HOLD = """
import sys
from pathlib import Path
from paddle_cluster.system.workspace_lock import locked
with locked(Path(sys.argv[1]), "JOB1"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_directory_that_another_process_holds_is_refused_with_its_name(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(UsageError, match=rf"JOB1 \(pid {holder.pid}\) is running in") as refused,
            locked(tmp_path, "JOB2"),
        ):
            pass
        assert refused.value.exit_code is ExitCode.USAGE
        holder.kill()
        holder.wait(10)
        with locked(tmp_path, "JOB2"):
            assert (tmp_path / "log" / ".lock").read_text() == f"JOB2 (pid {os.getpid()})\n"


def test_a_directory_can_be_claimed_again(tmp_path: Path) -> None:
    for job in ("JOB1", "JOB2"):
        with locked(tmp_path, job):
            pass


def test_a_claim_that_nothing_was_collected_under_leaves_nothing(tmp_path: Path) -> None:
    with locked(tmp_path / "JOB1", "JOB1"):
        assert (tmp_path / "JOB1" / "log").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_what_was_collected_or_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "old" / "log").mkdir(parents=True)
    for name in ("old", "new"):
        with locked(tmp_path / name, "JOB1"):
            (tmp_path / "new" / "log").mkdir(parents=True, exist_ok=True)
            (tmp_path / "new" / "log" / "train.log").touch()
    assert (tmp_path / "old" / "log").is_dir()
    assert (tmp_path / "new" / "log" / "train.log").is_file()


@pytest.mark.parametrize("name", ["log", "output"])
def test_a_file_in_the_place_of_a_directory_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=f"{name} is not a directory"), locked(tmp_path, "JOB1"):
        pass


def test_a_full_disk_does_not_hinder_a_claim(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / ".lock").symlink_to("/dev/full")
    with locked(tmp_path, "JOB1"):
        assert (tmp_path / "log").is_dir()
