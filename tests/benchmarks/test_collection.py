# SPDX-License-Identifier: Apache-2.0
"""A representative part of the matrix of `benchmarks.collection`, and a disk that stalls until after the job."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.collection import Case, campaign
from tests.cluster.host import interpreter
from tests.cluster.hosts import ROOT, missing_tools
from tests.cluster.launch import Launch
from tests.cluster.stalling_disk import StallingDisk

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing_tools()), reason="needs root and the tools of the test hosts"),
]

CASES = [
    Case("collect", 20_000, "1 B", "fast", 1, cut=False),
    Case("collect", 1_500, "mixed", "slow", 3, cut=True),
    Case("collect", 0, "0 B", "slow", 1, cut=False),
    Case("dispatch", 1_500, "mixed", "slow", 1, cut=False),
    Case("dispatch", 1_500, "0 B", "fast", 1, cut=True),
]
PRINT = """
import os, time
for number in range(1500):
    print("line", number, "x" * 100, flush=True)
    time.sleep(0.002)
    if number % 100 == 0 and os.environ["PADDLE_NODE_ID"] == "0":
        with open("output/%d" % number, "wb") as file:
            file.write(os.urandom(200_000))
"""


def test_every_file_arrives_or_is_named() -> None:
    wrong = [result for result in campaign(CASES) if not result.is_right]
    assert wrong == []


@pytest.fixture
def disk() -> Iterator[StallingDisk]:
    with StallingDisk(256) as made:
        yield made


def test_a_disk_that_stalls_for_longer_than_the_job_and_its_end_loses_nothing(
    disk: StallingDisk, tmp_path: Path
) -> None:
    workspace = disk.path / "ws"
    workspace.mkdir()
    (workspace / "train.py").write_text(PRINT)
    conf = tmp_path / "conf.py"
    conf.write_text(
        f"HOSTS = ['local'] * 2\nROOT_DIR = {str(tmp_path / 'nodes')!r}\nPYTHON = {interpreter()!r}\n"
        "LEASE_S = 6\nCOLLECT_TIMEOUT_S = 3\n"
    )
    launch = Launch(
        [interpreter(), str(ROOT / "paddle.py"), f"--conf={conf}", "-p", str(workspace), "--mode=collective"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        log=tmp_path / "launch.out",
    )
    launch.wait_for_line("line 100 ", 60)
    stall = threading.Thread(target=disk.stall, args=[20.0])
    stall.start()
    launch.wait_for_line("^== collect", 60)
    assert stall.is_alive()  # the job was over before the disk took anything
    code = launch.wait(120)
    stall.join()
    assert code == 0, launch.output
    assert "no message for" not in launch.output
    for node in range(2):
        (job_dir,) = (tmp_path / f"nodes/node_{node}").glob("JOB*")
        collected = (workspace / f"log/node_{node}/train.log").read_bytes()
        assert collected == (job_dir / "log/train.log").read_bytes()
        assert collected.count(b"\n") == 1500
    for number in range(0, 1500, 100):
        (job_dir,) = (tmp_path / "nodes/node_0").glob("JOB*")
        assert (workspace / f"output/{number}").read_bytes() == (job_dir / f"output/{number}").read_bytes()
