# SPDX-License-Identifier: Apache-2.0
"""What a node remembers of jobs, and how it ends one for a visitor: that job alone, whatever its record says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddle_node.agent import registry
from paddle_node.agent.job_requests import JobRequests
from paddle_node.agent.link.loop import Loop
from paddle_node.agent.link.outbox import Outbox
from paddle_node.contract.job_file import Agent, Ended, JobFile, Submitter
from paddle_node.contract.names import JOB_ID, NODE_ID
from paddle_node.contract.to_agent import Hello
from tests.runtime.paddle_node.agent.driven_node import Node, eventually, lives

HOLD = "import time; print('ready', flush=True); time.sleep(600)"
MakeNode = Callable[..., Node]


@pytest.fixture
def holding(node: Node) -> Node:
    """A node whose job runs one process."""
    node.python(HOLD)
    return node


@pytest.fixture
def visitor(make_node: MakeNode, holding: Node) -> Node:
    """Somebody else's agent on the same root directory."""
    visitor = make_node(job_id="VISIT-1")
    visitor.root = holding.root
    visitor.greet()
    return visitor


def record(node: Node) -> Path:
    return node.root / ".paddle" / "jobs" / f"{node.job_id}.{node.node_id}.json"


def found(visitor: Node, job_id: str) -> dict[str, Any]:
    visitor.link.send("jobs")
    (job,) = [job for job in visitor.expect("jobs_found").fields["jobs"] if job["job_id"] == job_id]
    return dict(job)


def end(visitor: Node, job_id: str) -> dict[str, Any]:
    visitor.link.send("end_job", job_id=job_id, grace_s=0.5)
    return visitor.expect("job_ended").fields


def test_a_visitor_sees_the_job_and_its_processes(holding: Node, visitor: Node) -> None:
    job = found(visitor, holding.job_id)
    assert job["alive"] is True
    assert job["processes"] == [{"name": "trainer-0", "role": "trainer", "rank": 0}]
    assert len(job["running"]) == 1


def test_a_visitor_leaves_no_record_of_its_own(holding: Node, visitor: Node) -> None:
    found(visitor, holding.job_id)
    assert [path.name for path in record(holding).parent.iterdir()] == [record(holding).name]


def test_a_visitor_ends_the_job_by_its_own_agent(holding: Node, visitor: Node) -> None:
    _, agent = holding.pids()
    ended = end(visitor, holding.job_id)
    assert ended["left"] == []
    assert "its agent stopped it" in ended["told"]
    assert not lives(agent)
    assert json.loads(record(holding).read_text())["ended"] is not None
    assert found(visitor, holding.job_id)["alive"] is False


def test_ending_one_job_leaves_another_of_the_same_root_directory(
    make_node: MakeNode, holding: Node, visitor: Node
) -> None:
    other = make_node()
    other.root = holding.root
    other.greet()
    other.adopt("job2")
    pid = other.start([sys.executable, "-c", HOLD], cwd=str(other.root / "job2"))
    end(visitor, holding.job_id)
    assert lives(pid)
    assert found(visitor, other.job_id)["alive"] is True


@pytest.mark.parametrize(
    "spoil",
    [
        {"start": 1},
        {"boot_id": "another boot"},
        {"pid": "12"},
        {"pid": -1},
        {"pid": 1},
    ],
)
def test_a_pid_in_a_record_is_not_signalled_unless_it_is_that_agent(
    make_node: MakeNode, tmp_path: Path, spoil: dict[str, Any]
) -> None:
    ours = make_node(job_id="JOB-record")
    ours.greet()
    ours.adopt()
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        start = int(Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19])
        fields = json.loads(record(ours).read_text())
        fields["job_id"] = "JOB-stale"
        fields["agent"].update({"pid": bystander.pid, "start": start} | spoil)
        record(ours).with_name("JOB-stale.0.json").write_text(json.dumps(fields))
        assert "its agent has exited" in end(ours, "JOB-stale")["told"]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"job_id": 7, "agent": {}}', '{"job_id": "x", "agent": []}']
)
def test_a_record_that_cannot_be_read_is_left_out(holding: Node, visitor: Node, content: str) -> None:
    record(holding).with_name("JOB-odd.0.json").write_text(content)
    assert found(visitor, holding.job_id)["alive"] is True


def test_a_record_that_cannot_be_written_is_told_and_the_job_runs(make_node: MakeNode) -> None:
    node = make_node()
    node.greet()
    (node.root / ".paddle").mkdir(parents=True, mode=0o700, exist_ok=True)
    (node.root / ".paddle" / "jobs").touch()
    node.adopt()
    pid = node.python(HOLD)
    eventually(lambda: lives(pid), "the process")
    node.expect("line")
    assert any("cannot write" in notice for notice in node.notices())


def test_the_process_that_only_carries_a_jobs_id_is_found_and_ended(make_node: MakeNode) -> None:
    node = make_node()
    node.greet()
    environ = {**os.environ, "PADDLE_JOB_ID": "JOB-stray"}
    stray = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environ)
    try:
        eventually(lambda: b"JOB-stray" in Path(f"/proc/{stray.pid}/environ").read_bytes(), "its environment")
        job = found(node, "JOB-stray")
        assert job["unrecorded"] is True
        assert [pid for pid, _ in job["running"]] == [stray.pid]
        assert end(node, "JOB-stray")["left"] == []
        assert stray.wait(10) == -15
    finally:
        stray.kill()
        stray.wait()


def test_the_directories_of_earlier_jobs_are_removed_after_all_other_work(tmp_path: Path) -> None:
    first, second = tmp_path / "JOB1", tmp_path / "JOB2"
    for made in (first, second):
        made.mkdir()
    submitter = Submitter("user", "host", collected="/ws")
    earlier = JobFile(
        "JOB1",
        Agent(),
        submitter=submitter,
        keeps_state=False,
        root_dir=str(tmp_path),
        job_dir=str(first),
        hostname=socket.gethostname(),
        ended=Ended(settled=True),
    )
    (tmp_path / ".paddle").mkdir(mode=0o700)
    (tmp_path / ".paddle/jobs").mkdir(mode=0o700)
    registry.write(str(tmp_path / ".paddle/jobs/JOB1.0.json"), earlier)
    loop = Loop()
    seen: list[bool] = []

    def look(times: int) -> Iterator[None]:
        for _ in range(times):
            seen.append(first.exists())
            yield
        loop.stop()

    with open(os.devnull, "wb") as null:
        requests = JobRequests(loop, Outbox(loop, null.fileno(), lambda: None))
        hello = Hello("JOB2", str(tmp_path), "", 30.0, 0, submitter=submitter, keep_jobs=1, keeps_state=False)
        requests.open(str(tmp_path), {JOB_ID: "JOB2", NODE_ID: "0"}, hello)
        requests.begin(str(second), "")
        loop.work(look(9))
        loop.run()
        assert seen == [True] * 9
        while loop.has_chores:
            loop._work_a_slice()
    assert not first.exists()
