# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import platform
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from paddle_node.agent.files import disk, storage
from paddle_node.agent.node import limits
from paddle_node.contract.probed import Disk
from paddle_node.contract.records import read
from tests.runtime.paddle_node.agent.driven_node import Node
from tests.runtime.paddle_node.agent.node.probing import fake_program, probe, what


def test_the_jobs_python_and_its_modules_are_reported(idle: Node) -> None:
    found = probe(idle, modules=["numpy", "no_such_module_at_all"])
    assert found["python_version"] == platform.python_version()
    assert found["modules"] == {"numpy": numpy.__version__, "no_such_module_at_all": None}
    assert found["problems"] == []


def test_a_module_of_the_users_home_directory_is_not_imported(idle: Node, tmp_path: Path) -> None:
    found = probe(idle, modules=["json"])
    assert found["modules"]["json"]


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false", "/etc/passwd"])
def test_a_python_that_cannot_run_is_a_problem(make_node: Callable[..., Node], python: str) -> None:
    node = make_node()
    node.link.send("hello", job_id="j", node_id=0, lease_s=30, root_dir=str(node.root), python=python)
    found = probe(node, modules=["numpy"])
    assert what(found) == ["python"]
    assert python in found["problems"][0][1]
    assert found["python_version"] == ""


def test_a_root_directory_that_is_not_there_is_not_made(idle: Node) -> None:
    found = probe(idle)
    assert found["writable"] is True
    assert found["free_bytes"] > 0
    assert not idle.root.exists()
    assert list(idle.root.parent.iterdir()) == []


def test_a_tilde_is_the_home_directory(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    node = make_node()
    node.link.send("hello", job_id="j", node_id=0, lease_s=30, root_dir="~/jobs", python=sys.executable)
    assert probe(node)["root_dir"] == str(tmp_path / "jobs")


def test_a_root_directory_below_a_file_or_a_read_only_disk_is_a_problem(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for root in ("/proc/jobs", "/sys/jobs", str(tmp_path / "file")):
        node = make_node()
        node.root = Path(root)
        node.greet()
        found = probe(node)
        assert found["writable"] is False
        assert what(found) == ["root_dir"]
        assert os.path.dirname(root) in found["problems"][0][1]


def test_too_little_room_is_a_problem(idle: Node) -> None:
    assert what(probe(idle, need_bytes=1 << 60)) == ["disk"]


def test_a_workspace_that_is_not_there_is_a_problem(idle: Node, tmp_path: Path) -> None:
    assert what(probe(idle, workspace="/no/such/dir")) == ["workspace"]
    assert what(probe(idle, workspace="relative/to/root")) == ["workspace"]
    assert what(probe(idle, workspace=str(tmp_path))) == []


def test_nodes_that_would_make_the_same_directory_see_each_others_marks(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    nodes = [make_node(node_id=index) for index in range(3)]
    for node, root in zip(nodes, ("shared/jobs", "shared/jobs", "shared/other"), strict=True):
        node.root = tmp_path / root
        node.greet()
        probe(node, token="JOB-1", node_id=node.node_id)
    for node in nodes:
        node.link.send("reach", peers=[])
    assert [node.expect("reached").fields["neighbours"] for node in nodes] == [[1], [0], []]
    for node in nodes:
        node.close()
    assert list(tmp_path.iterdir()) == []


def test_a_mark_of_another_launch_is_no_neighbour(make_node: Callable[..., Node], tmp_path: Path) -> None:
    nodes = [make_node(node_id=index) for index in range(2)]
    for node in nodes:
        node.root = tmp_path / "shared"
        node.greet()
        probe(node, token=f"JOB-{node.node_id}", node_id=node.node_id)
    nodes[1].link.send("reach", peers=[])
    assert nodes[1].expect("reached").fields["neighbours"] == []


def test_limits_memory_and_disks_are_told(idle: Node) -> None:
    found = probe(idle)
    machine = found["facts"]["machine"]
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert set(machine["limits"]) == {"nofile", "nproc", "memlock", "core"}
    assert machine["memory_bytes"] > machine["memory_free_bytes"] > 0
    assert machine["threads_of_user"] > 0
    assert {disk["path"] for disk in found["facts"]["disks"]} >= {"/tmp", os.path.expanduser("~")}
    assert found["facts"]["root_dir"]["kind"]
    assert set(found["steps"]) == {"python", "root_dir", "home", "/tmp", "machine", "ports", "gpus"}


def with_nvidia_smi(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, folder: Path, script: str
) -> dict[str, Any]:
    fake_program(folder, "nvidia-smi", script)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    node = make_node()
    node.greet()
    return probe(node, gpus=True)


def test_gpus_are_counted_as_nvidia_smi_tells(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = "echo '550.54.15, NVIDIA H100'; echo '550.54.15, NVIDIA H100'\n"
    found = with_nvidia_smi(make_node, monkeypatch, tmp_path / "bin", script)
    assert found["gpus"] == {"count": 2, "driver": "550.54.15", "names": ["NVIDIA H100"]}


def test_a_broken_nvidia_smi_is_a_remark(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = with_nvidia_smi(
        make_node, monkeypatch, tmp_path / "bin", "echo 'Failed to initialize NVML'; exit 9\n"
    )
    assert found["problems"] == []
    ((name, text),) = found["remarks"]
    assert name == "gpus"
    assert "Failed to initialize NVML" in text


def test_a_hanging_nvidia_smi_delays_nothing_else_and_becomes_a_remark(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = with_nvidia_smi(make_node, monkeypatch, tmp_path / "bin", "exec sleep 600\n")
    assert found["problems"] == []
    assert "did not answer within" in found["remarks"][0][1]
    assert found["python_version"]
    assert found["steps"]["machine"] < found["steps"]["gpus"]


def test_pings_are_answered_while_checks_run_with_the_nodes_clock(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_program(tmp_path / "bin", "nvidia-smi", "exec sleep 600\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    node = make_node()
    node.greet()
    node.link.send("probe", address="127.0.0.1", gpus=True)
    node.link.send("ping", seq=7)
    pong = node.expect("pong", seq=7).fields
    assert abs(pong["clock"] - time.time()) < 60
    assert not [event for event in node.seen if getattr(event, "kind", "") == "probed"]


def test_a_deployed_directory_without_its_entry_or_with_an_empty_one_is_a_problem(
    idle: Node, tmp_path: Path
) -> None:
    assert what(probe(idle, workspace=str(tmp_path), entry="train.py")) == ["workspace"]
    (tmp_path / "train.py").write_text("")
    ((kind, text),) = probe(idle, workspace=str(tmp_path), entry="train.py")["problems"]
    assert kind == "workspace"
    assert "train.py is empty (0 bytes)" in text
    (tmp_path / "train.py").write_text("pass\n")
    assert what(probe(idle, workspace=str(tmp_path), entry="train.py")) == []
    assert what(probe(idle, workspace=str(tmp_path), entry=None)) == []


def test_a_deployed_directory_with_a_package_without_the_module_to_run_is_a_problem(
    idle: Node, tmp_path: Path
) -> None:
    def found(module: str) -> list[str]:
        return [text for _, text in probe(idle, workspace=str(tmp_path), module=module)["problems"]]

    assert found("installed.elsewhere") == []
    package = tmp_path / "net"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (absent,) = found("net.train")
    assert "net/train.py does not exist" in absent
    (absent,) = found("net")
    assert "net/__main__.py does not exist" in absent
    (package / "train.py").write_text("")
    (empty,) = found("net.train")
    assert "net/train.py is empty (0 bytes)" in empty
    (package / "train.py").write_text("pass\n")
    assert found("net.train") == []


def test_a_python_that_takes_too_long_is_told_with_its_limit(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    fake_program(tmp_path / "bin", "slow", "exec sleep 600\n")
    node = make_node()
    python = str(tmp_path / "bin" / "slow")
    node.link.send("hello", job_id="j", node_id=0, lease_s=30, root_dir=str(node.root), python=python)
    found = probe(node, limit_s=0.2)
    assert what(found) == ["python"]
    assert "time limit is 0.2 s" in found["problems"][0][1]


def with_package(folder: Path, name: str, listed: str, own: str) -> None:
    """A package as it is installed: (name, the version of its distribution, the version that it says itself)."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text("from .version import version as __version__\n")
    (folder / name / "version.py").write_text(f"version: str = '{own}'\n")
    (folder / f"{name}-{listed}.dist-info").mkdir()


@pytest.mark.parametrize(
    ("listed", "own", "wrong"), [("1.2", "1.2", False), ("1.2", "1.2+local", False), ("2.0", "1.2", True)]
)
def test_a_module_that_says_another_version_than_its_distribution_is_a_problem(
    make_node: Callable[..., Node], tmp_path: Path, listed: str, own: str, wrong: bool
) -> None:
    with_package(tmp_path / "site", "twofold", listed, own)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}/site" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    node = make_node()
    node.link.send("hello", job_id="j", node_id=0, lease_s=30, root_dir=str(node.root), python=str(python))
    found = probe(node, modules=["twofold"])
    assert what(found) == (["python"] if wrong else [])
    assert found["modules"]["twofold"] == own
    assert not wrong or re.search("twofold .* 1.2, .* distribution .* 2.0", found["problems"][0][1])


def test_the_code_of_a_workspace_is_told_without_its_data(idle: Node, tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    code = ("train.py", "pkg/net.py", "go.sh", "run")
    others = ("log/old.py", "pkg/__pycache__/net.py", ".git/hook.py", "data.bin")
    for name in (*code, *others):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(name)
    (workspace / "gone.py").symlink_to("nowhere")
    os.mkfifo(workspace / "pipe.py")
    first = probe(idle, workspace=str(workspace), entry="run", code=True)["facts"]["code"]
    assert sorted(first) == ["go.sh", "gone.py", "pipe.py", "pkg/net.py", "run", "train.py"]
    (workspace / "train.py").write_text("other")
    second = probe(idle, workspace=str(workspace), entry="run", code=True)["facts"]["code"]
    assert [path for path in first if first[path] != second[path]] == ["train.py"]
    assert probe(idle, workspace=str(workspace), entry="run")["facts"]["code"] is None


@pytest.mark.parametrize("small_disk", ["nr_inodes=100"], indirect=True)
def test_too_few_inodes_are_a_problem_with_their_number(
    make_node: Callable[..., Node], small_disk: Path
) -> None:
    node = make_node()
    node.root = small_disk
    node.greet()
    ((kind, text),) = probe(node, need_files=1000)["problems"]
    assert kind == "disk"
    assert re.match(rf"{small_disk} has \d\d free inodes, but 1000 are needed", text)


def test_a_disk_or_limit_of_nearly_2_63_fits_a_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    block, blocks, inodes = 1 << 20, (1 << 43) - 1, (1 << 64) - 1
    status = os.statvfs_result((block, block, blocks, blocks, blocks, inodes, inodes, inodes, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    found = storage.examine(str(tmp_path), write=False)
    fields = {"path": found["path"], "free_bytes": found["free_bytes"], "free_inodes": found["free_inodes"]}
    assert read(Disk, fields, "disk", "a node").free_bytes >= 1 << 61
    assert disk.free_bytes(str(tmp_path)) == found["free_bytes"]
    before = resource.getrlimit(resource.RLIMIT_CORE)
    if before[1] != resource.RLIM_INFINITY:
        pytest.skip("this user cannot raise the limit")
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (5 << 20, before[1]))
        assert limits.kernel_limits()["limits"]["core"] == 5 << 20
        resource.setrlimit(resource.RLIMIT_CORE, ((1 << 63) - 1, before[1]))
        assert limits.kernel_limits()["limits"]["core"] is None
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
