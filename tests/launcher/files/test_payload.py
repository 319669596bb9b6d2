# SPDX-License-Identifier: Apache-2.0
"""A job whose script would not travel is refused before any connection."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("entry", "ignored"), [("train.py", "*.py\n"), ("output/train.py", ""), ("code/train.py", "code/\n")]
)
def test_an_entry_script_that_does_not_travel_is_refused(entry: str, ignored: str, tmp_path: Path) -> None:
    script = tmp_path / "ws" / entry
    script.parent.mkdir(parents=True)
    script.touch()
    (tmp_path / "ws" / ".paddleignore").write_text(ignored)
    (tmp_path / "conf.py").write_text(f"HOSTS = ['local']\nROOT_DIR = {str(tmp_path / 'node')!r}\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "paddle.py"), "--conf=conf.py", "-p", "ws", f"--entry={entry}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{entry} is not sent to the nodes" in done.stderr
    assert not (tmp_path / "node").exists()
