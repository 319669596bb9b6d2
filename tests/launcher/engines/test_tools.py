# SPDX-License-Identifier: Apache-2.0
"""What mpirun and srun are given for the hosts of a job."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from paddle_cluster.engines.callback_agents import CallbackAgent
from paddle_cluster.engines.engine import entry
from paddle_cluster.engines.openmpi import tool_of
from paddle_cluster.engines.tool_process import Tool, ToolProcess
from paddle_cluster.errors import UsageError
from tests.launcher.configuring import Resolve
from tests.launcher.planning import Planned


def test_mpirun_gets_hosts_of_an_inventory_by_address(configured: Resolve, tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text(
        "[web]\nw1 ansible_host=10.0.0.9 ansible_user=ada ansible_port=22\nw2\n"
    )
    cluster = configured("", "-p", "ws", "--hostfile=hosts.ini", "--engine=openmpi").cluster
    assert tool_of(cluster.hosts).hosts == "ada@10.0.0.9 slots=1\nw2 slots=1\n"


def test_a_port_of_sshd_is_refused_with_the_place_where_it_belongs(planned: Planned) -> None:
    plan = planned("HOSTS = ['a', 'b:2222']\n", "--engine=openmpi")
    with pytest.raises(UsageError, match=r"'b:2222' has a port, .* in ~/.ssh/config"):
        entry(plan.settings).of(plan, is_job=False).check()


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (
            "ssh: connect to host a port 22: refused\n----\nORTE was unable\nto start",
            "ssh: connect to host a port 22: refused",
        ),
        ("root@a: Permission denied (publickey).\n----\nPMIx", "root@a: Permission denied (publickey)."),
        ("----\nno slots\nleft\n", "no slots | left"),
    ],
)
def test_the_reason_of_ssh_is_shown_without_the_text_of_mpirun(output: str, shown: str) -> None:
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    tool = ToolProcess(Tool("mpirun", ("printf", "%s", output), ()), ("a",))
    tool.start(lambda hosts, ranks: CallbackAgent((), {}), lambda why, *_: ended.put(why))
    assert ended.get(timeout=10.0) == f"mpirun exited with status 0: {shown}"
    assert tool.close() == ""


def test_a_tool_whose_thread_is_refused_is_killed_and_can_be_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    tool = ToolProcess(Tool("sleeper", ("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600"), ()), ("a",))
    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="start new thread"):
        tool.start(lambda *_: CallbackAgent((), {}), lambda *_: None)
    assert tool.close() == ""
    assert tool._process is not None
    assert tool._process.returncode == -9
