# SPDX-License-Identifier: Apache-2.0
"""A job's start is lean: what is imported before its first connection, and the modules that a command line enters
until the plan is printed, are counted, and the counts may only shrink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Prints how many modules of the product and in all are imported once the libraries for logins are.
COUNT = """
import os, sys
def hook(event, args):
    if event == "import" and args[0] == "paddle_cluster.control.control":
        ours = sum(name.startswith(("paddle_cluster", "paddle_node")) for name in sys.modules)
        os.write(1, b"%d %d " % (ours, len(sys.modules)) + " ".join(sys.modules).encode())
        os._exit(0)
sys.path.insert(0, ROOT)
sys.argv[0] = "paddle.py"
import subprocess, threading
import paddle_cluster
sys.addaudithook(hook)
paddle_cluster.main()
"""
# What no plain job needs before its first connection, if ever.
FORBIDDEN = (
    *(
        "asyncio",
        "email",
        "fabric",
        "http",
        "inspect",
        "invoke",
        "unittest",
        "yaml",
    ),
    *("importlib.metadata", "kubernetes", "pathspec", "packaging", "ssl", "tensorboardX", "urllib3"),
    *(
        f"paddle_cluster.{name}"
        for name in ("api", "cli.detach", "control.store", "dashboard", "files.wheels")
    ),
    *(f"paddle_cluster.engines.{name}" for name in ("kubernetes", "openmpi", "slurm", "callback_agents")),
    *(f"paddle_cluster.ssh.{name}" for name in ("openssh", "residents")),
)
COUNT = COUNT.replace("ROOT", repr(str(ROOT)))


@pytest.mark.parametrize(
    ("hosts", "most_ours", "most"),
    [
        pytest.param(["local"] * 3, 87, 212, id="local"),  # with agent_code, as nothing is cached yet
        pytest.param(["root@127.0.0.1:1"], 102, 357, id="ssh"),
    ],
)
def test_a_plain_job_imports_few_modules_before_its_first_connection(
    hosts: list[str], most_ours: int, most: int, tmp_path: Path
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "train.py").write_text("pass\n")
    (tmp_path / "conf.py").write_text(f"HOSTS = {hosts}\nSSH_CONFIG = '/dev/null'\n")
    done = subprocess.run(
        [sys.executable, "-c", COUNT, "--job_dispatch_package=ws", "--conf=conf.py"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PADDLE_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    ours, modules = map(int, done.stdout.split()[:2])
    assert set(done.stdout.split()) & set(FORBIDDEN) == set()
    assert ours <= most_ours
    assert modules <= most


def test_a_command_line_enters_few_modules_on_its_way_to_the_plan(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    tool = ROOT / "tools" / "ways.py"
    subprocess.run(
        [sys.executable, tool, "argv", f"--json={found}"], capture_output=True, check=True, timeout=120
    )
    assert len({file for file, _ in json.loads(found.read_text())["argv"]}) <= 30
