# SPDX-License-Identifier: Apache-2.0
"""Logs of whole jobs on real hosts: merged by time, rotated, bounded, whole up to a kill."""

from __future__ import annotations

import os
import re
import signal
from datetime import datetime

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

LINE = re.compile(r"(\S+ \S+) \[(?:trainer (\d+) [^]]*|launcher|pserver [^]]*)\] (.*)")
COUNT = """
import os, time
for number in range(100):
    print(f"{time.time():.6f} line {number} of {os.environ['PADDLE_TRAINER_ID']}", flush=True)
    time.sleep(0.02)
"""
FLOOD = """
for number in range(60_000):
    print("%099d" % number)
print("the last line")
"""
FAIL = """
import os, time
for number in range(10):
    print("line", number, flush=True)
if os.environ["RANK"] == "1":
    1 / 0
time.sleep(60)
"""
ENDLESS = """
import itertools, time
for number in itertools.count():
    print(number, flush=True)
    time.sleep(0.005)
"""


def collected(job: JobRunner, node_id: int) -> dict[str, bytes]:
    folder = job.workspace / "log" / f"node_{node_id}"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@scenarios.add
def one_log_has_every_line_of_every_node_in_the_order_of_time(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    (job.workspace / "train.py").write_text(COUNT)
    oracle.check(job.start("--mode=collective"), 0)
    found = [LINE.fullmatch(line) for line in (job.workspace / "log/job.log").read_text().splitlines()]
    lines = [match for match in found if match is not None]
    assert len(lines) == len(found)
    stamps = [datetime.fromisoformat(match[1]).timestamp() for match in lines]
    assert stamps == sorted(stamps)
    for rank in range(3):
        texts = [match[3] for match in lines if match[2] == str(rank)]
        assert texts == job.log(rank, "train.log").splitlines()
        assert [text.split(" ", 1)[1] for text in texts] == [
            f"line {number} of {rank}" for number in range(100)
        ]
    # the stamp is when the line was read on its node, not when it came
    late = [
        stamp - float(match[3].split()[0]) for stamp, match in zip(stamps, lines, strict=True) if match[2]
    ]
    assert sorted(late)[len(late) // 2] < 0.5
    said = [match[3] for match in lines if "[launcher]" in match[0]]
    assert said.index("== run") < said.index("== stop")
    assert said[-1].endswith("(exit 0)")


@scenarios.add
def a_flood_is_rotated_alike_on_the_node_and_here_and_what_is_missing_is_said(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    (job.workspace / "train.py").write_text(FLOOD)
    job.conf["LOG_LIMIT_MB"] = 1
    end = oracle.check(job.start("--mode=collective"), 0)
    for node_id, host in enumerate(cluster.hosts):
        there = {path.name: path.read_bytes() for path in (job.job_dir(host) / "log").iterdir()}
        assert collected(job, node_id) == there
        assert set(there) >= {"train.log", "train.log.1", "train.log.2"}
        assert there["train.log"].endswith(b"the last line\n")
        kept = sum(len(there[name]) for name in ("train.log", "train.log.1", "train.log.2"))
        told = re.search(rf"{host.name}: the oldest (\d+) bytes of log/train.log were dropped", end.output)
        assert told is not None
        assert kept + int(told[1]) == 60_000 * 100 + len("the last line\n")


@scenarios.add
def what_came_before_the_agent_was_killed_is_whole_and_the_rest_is_said(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    (job.workspace / "train.py").write_text(ENDLESS)
    launch = job.start("--mode=collective")
    job.wait_for_role("TRAINER")
    log = job.workspace / "log/node_1/train.log"
    wait_for("some lines of node 1", lambda: log.exists() and log.stat().st_size > 1000, 30)
    trainer = job.processes("TRAINER")["node-b"]
    os.kill(trainer.ppid, signal.SIGKILL)
    oracle.check(launch, 5, r"^NOT COLLECTED from root@node-b", within_s=30)
    lines = log.read_bytes().split(b"\n")
    assert [int(line) for line in lines[:-1]] == list(range(len(lines) - 1))


@scenarios.add
def the_last_line_names_the_cause_and_the_command_shows_what_is_asked_for(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    (job.workspace / "train.py").write_text(FAIL)
    job.workspace = job.workspace / ".." / job.workspace.name
    end = oracle.check(job.start("--mode=collective"), 1)
    job_id, _, said = end.output.splitlines()[-1].partition(": ")
    assert (
        said == "failed: trainer 1 on root@node-b: exit code 1: ZeroDivisionError: division by zero (exit 1)"
    )
    shown = cluster.launch(["logs", job_id[-6:], "--node=node-b", "--grep=^line|Error:", "--lines=2"])
    assert shown.wait(20) == 0
    first, last = (line.split(" ", 2)[2] for line in shown.output.splitlines())
    assert first == "[trainer 1 root@node-b] line 9"
    assert last == "[trainer 1 root@node-b] ZeroDivisionError: division by zero"


@scenarios.add
def what_lies_in_the_place_of_a_nodes_logs_gives_way_and_a_link_is_not_followed(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    scratch = job.workspace.parent
    (scratch / "elsewhere").mkdir()
    (scratch / "elsewhere/mine").touch()
    (job.workspace / "log").mkdir()
    (job.workspace / "log/node_0").write_text("a file\n")
    (job.workspace / "log/node_1").symlink_to(scratch / "elsewhere")
    oracle.check(job.start("--mode=collective"), 0)
    assert all("train.log" in collected(job, node_id) for node_id in range(3))
    assert [path.name for path in (scratch / "elsewhere").iterdir()] == ["mine"]


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
