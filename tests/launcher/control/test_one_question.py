# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.config.options import SshClient
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.control.job_record import NodeEntry
from paddle_cluster.control.one_question import visit
from paddle_node.contract.to_launcher import JobsFound

NODES = 6
OF_ANOTHER_VERSION = """#!{python}
import subprocess, sys
agent = subprocess.Popen([{python!r}, *sys.argv[1:]], stdout=subprocess.PIPE, bufsize=0)
while data := agent.stdout.read(1 << 16):
    sys.stdout.buffer.write(data.replace(b"7777.0", b'"7777"'))
    sys.stdout.buffer.flush()
"""


@pytest.fixture
def few_files() -> Iterator[None]:
    """A soft limit of open files that is too low for the visit, and a hard one that is not."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 2 * NODES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_files")
def test_many_nodes_are_asked_whatever_the_soft_limit_of_open_files(tmp_path: Path) -> None:
    nodes = [NodeEntry(i, f"n{i}", "local", str(tmp_path / f"n{i}"), "", "python3") for i in range(NODES)]
    answers = visit(nodes, SshSettings(config=Path(), known_hosts=Path()), "jobs", JobsFound, 10.0)
    assert [answer.error for answer in answers] == [""] * NODES


def test_a_row_that_cannot_be_read_voids_no_other_row_of_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".paddle" / "jobs"
    folder.mkdir(parents=True)
    for name, since in (("good", 5555.0), ("bad", 7777.0)):
        fields = {"job_id": name, "agent": {"pid": 0}, "hostname": socket.gethostname(), "since": since}
        (folder / f"{name}.0.json").write_text(json.dumps(fields))
    python = tmp_path / "python3"
    python.write_text(OF_ANOTHER_VERSION.format(python=sys.executable))
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    node = NodeEntry(0, "n0", "local", str(tmp_path), "", "python3")
    (answer,) = visit([node], SshSettings(config=Path(), known_hosts=Path()), "jobs", JobsFound, 10.0)
    assert answer.record is not None
    assert {job.job_id for job in answer.record.jobs if job.since} == {"good"}
    assert "n0: jobs_found.jobs[].since must be seconds since 1970" in answer.error


def test_a_node_that_cannot_be_logged_in_to_comes_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    node = NodeEntry(0, "n0", "ada@n0", str(tmp_path), "", "python3")
    ssh = SshSettings(client=SshClient.OPENSSH, config=Path(), known_hosts=Path())
    (answer,) = visit([node], ssh, "jobs", JobsFound, 10.0)
    assert "`ssh` is not in PATH. Install OpenSSH's client" in answer.error
