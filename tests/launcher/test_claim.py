# SPDX-License-Identifier: Apache-2.0
"""Two jobs never collect into one directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.claim import claimed
from launcher.errors import ExitCode, UsageError

HOLD = """
import sys
from pathlib import Path
from launcher.claim import claimed
with claimed(Path(sys.argv[1]), "JOB1"):
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
            pytest.raises(UsageError, match=rf"JOB1 \(pid {holder.pid}\) is collecting") as refused,
            claimed(tmp_path, "JOB2"),
        ):
            pass
        assert refused.value.exit_code is ExitCode.USAGE
        holder.kill()
        holder.wait(10)
        with claimed(tmp_path, "JOB2"):
            assert (tmp_path / "log" / ".lock").read_text() == f"JOB2 (pid {os.getpid()})\n"


def test_a_directory_can_be_claimed_again(tmp_path: Path) -> None:
    for job in ("JOB1", "JOB2"):
        with claimed(tmp_path, job):
            pass


def test_a_file_in_the_place_of_the_log_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    with pytest.raises(UsageError, match="must be writable"), claimed(tmp_path, "JOB1"):
        pass
