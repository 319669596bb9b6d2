# SPDX-License-Identifier: Apache-2.0
"""A job whose collected files are all here ends with 0, whatever becomes of its agents and of names in output/."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.deadline import wait_for
from tests.cluster.stalling_disk import StallingDisk
from tests.launcher.control_jobs import LIMIT_S, Bench

CHANGE = """
import os, shutil, sys, time

for path in ("output/latest", "output/best"):
    os.makedirs(path)
    open(path + "/w", "w").write("first")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
for path in ("output/latest", "output/best"):
    shutil.rmtree(path)
os.mkdir("output/step-2")
open("output/step-2/w", "w").write("second")
os.symlink("step-2", "output/latest")
open("output/best", "w").write("a file")
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_directories_of_output_may_become_links_and_files(bench: Bench) -> None:
    (bench.place / "ws/train.py").write_text(CHANGE)
    output, go = bench.place / "ws/output", bench.place / "go"
    job = bench.start("-p", "ws", "--conf=conf.py", "--mode=collective", "--", str(go))
    wait_for(
        "the first files", lambda: (output / "latest/w").exists() and (output / "best/w").exists(), LIMIT_S
    )
    go.touch()
    assert job.wait(LIMIT_S) == 0, (bench.place / "out").read_text()
    assert (os.readlink(output / "latest"), (output / "latest/w").read_text()) == ("step-2", "second")
    assert (output / "best").read_text() == "a file"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("fsfreeze") is None, reason="freezes a disk of its own")
def test_an_agent_that_is_killed_when_all_it_had_was_sent_costs_nothing(bench: Bench) -> None:
    out = bench.place / "out"
    with StallingDisk() as disk:
        shutil.copytree(bench.place / "ws", disk.path / "ws")
        job = bench.start("-p", str(disk.path / "ws"), "--conf=conf.py", "--mode=collective")
        wait_for("its first line", lambda: "step 0" in out.read_text(), LIMIT_S)
        disk.freeze()
        wait_for("the stalled disk", lambda: "no write to this disk succeeded" in out.read_text(), LIMIT_S)
        for pid in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)  # the guard, and with it the agent
        wait_for("the end of its agent", lambda: "was killed" in out.read_text(), LIMIT_S)
        disk.thaw()
        assert job.wait(LIMIT_S) == 0, out.read_text()
        assert "NOT COLLECTED" not in out.read_text()
        assert (disk.path / "ws/log/node_0/train.log").read_text() == "step 0\nstep 1\nstep 2\n"
