# SPDX-License-Identifier: Apache-2.0
"""A command that ends early waits for the imports of its first login, which would abort a process that exits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

REFUSED = """
import os, sys, threading
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, ROOT)
from paddle_cluster.nodes.connector import prepare

class Slow:
    def prepare(self):
        threading.main_thread().join()  # the command has ended
        threading.Event().wait(0.2)  # the interpreter exits meanwhile
        os.write(1, b"prepared")

prepare(SimpleNamespace(settings=SimpleNamespace(state=SimpleNamespace(jobs=Path(FOLDER)))), Slow())
"""


def test_an_early_exit_waits_for_the_preparation(tmp_path: Path) -> None:
    script = f"ROOT, FOLDER = {str(ROOT)!r}, {str(tmp_path)!r}\n{REFUSED}"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "prepared"), ended.stderr
