# SPDX-License-Identifier: Apache-2.0
"""The first moments of a command: Ctrl+C during its imports, and a HOME that belongs to another user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60

INTERRUPTED = """
import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == AT:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.path.insert(0, ROOT)
sys.argv = ["paddle.py", "--help"]
runpy.run_path(ROOT + "/paddle.py", run_name="__main__")
""".replace("ROOT", repr(str(ROOT)))

HOMES = f"""
import os, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "runtime")!r}]
from paddle_cluster.system.state_dir import unusable_home
os.geteuid() or os.setuid(65534)
for home in ("/", "/tmp", "/none"):
    print(home, unusable_home({{"HOME": home}}))
"""


def ran(code: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=LIMIT_S, check=False)


@pytest.mark.parametrize("at", ["paddle_cluster", "paddle_cluster.cli.main", "paddle_cluster.config.options"])
def test_ctrl_c_during_the_imports_ends_with_130_and_a_line(at: str) -> None:
    done = ran(INTERRUPTED.replace("AT", repr(at)))
    assert (done.returncode, done.stderr) == (130, b"stopped; nothing had been started\n")


def test_a_home_that_another_user_owns_is_named() -> None:
    first, *others = ran(HOMES).stdout.decode().splitlines()
    assert first.startswith("/ WARNING: HOME=/ belongs to root, but you are ")
    assert first.endswith(": set HOME (sudo -H sets it)")
    assert others == ["/tmp ", "/none "]
