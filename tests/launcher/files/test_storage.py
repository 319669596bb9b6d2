# SPDX-License-Identifier: Apache-2.0
"""File systems that users have: full disks, quotas, names without case, files that NFS keeps after their removal."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from paddle_cluster.errors import WorkspaceError
from paddle_cluster.files.collect import Collector
from paddle_cluster.files.ledger import ListedRow
from paddle_cluster.files.package import workspace_package
from paddle_cluster.system.digests import Digests, Hashed
from paddle_node.agent.files import disk
from paddle_node.contract.collected import Directory
from tests.launcher.control_jobs import Bench
from tests.launcher.files.test_verification import listed, row

REMOVED = [".nfs" + "0" * 15 + "1" * 9, ".fuse_hidden" + "0" * 16]
OWN = [".nfsrc", ".nfs0123456789abcdeg", ".fuse_hidden"]


@pytest.fixture
def caseless(tmp_path: Path) -> Path:
    """A directory in which log and LOG are the same directory, as where names have no case."""
    (tmp_path / "log").mkdir()
    (tmp_path / "LOG").symlink_to("log")
    return tmp_path


def test_files_whose_names_differ_only_in_case_are_all_collected_where_names_have_no_case(
    caseless: Path,
) -> None:
    collector, output = Collector(caseless), caseless / "output"
    for directory in ("output/D", "output/d"):
        assert collector.make_folder(0, Directory(directory, 0o700)) == ""
    told = [collector.store(0, f"output/d/{name}", 0, True, name.encode()) for name in ("Model", "model")]
    told += [collector.link(0, f"output/{name}", "d/Model") for name in ("Link", "link")]
    assert [bool(line) for line in told] == [False, True, False, True]
    assert told[1].startswith("output/d/model: another file's name differs only in case")
    rows = [
        row("output/d/Model", b"Model"),
        row("output/d/model", b"model"),
        ListedRow("output/d", "directory", 0, ""),
    ]
    links = [ListedRow(f"output/{name}", "link", 0, "d/Model") for name in ("Link", "link")]
    assert listed(collector, *rows, *links) == ()
    assert collector.ledger(0).is_proven
    names = [path.name.casefold() for path in output.rglob("*") if not path.is_dir()]
    assert len(set(names)) == len(names) == 4


@pytest.mark.parametrize("name", ["w", "W", "dir/w"])
def test_where_names_have_case_every_file_keeps_its_name(tmp_path: Path, name: str) -> None:
    collector = Collector(tmp_path)
    (tmp_path / "log").mkdir()
    assert [collector.store(0, f"output/{one}", 0, True, b"x") for one in ("w", "W", name)] == [""] * 3
    assert (tmp_path / "output" / name).read_bytes() == b"x"


def test_files_that_were_removed_while_open_are_neither_collected_nor_sent(bench: Bench) -> None:
    (bench.place / "ws/train.py").write_text(
        f"for name in {REMOVED + OWN!r}: open('output/' + name, 'w').close()\n"
    )
    for name in REMOVED + OWN:
        (bench.place / "ws" / name).write_text(name)
    assert bench.run("-p", "ws", "--conf=conf.py", "--mode=collective").returncode == 0
    assert sorted(os.listdir(bench.place / "ws/output")) == sorted(OWN)
    assert {entry.path for entry in workspace_package(bench.place / "ws").entries} == {"train.py", *OWN}


@pytest.mark.parametrize("small_disk", ["size=64k"], indirect=True)
def test_files_for_which_a_full_disk_has_room_are_complete(small_disk: Path) -> None:
    collector, half = Collector(small_disk), b"x" * 20_000
    for offset in (0, 20_000):
        for name in "abc":
            collector.store(0, f"output/{name}", offset, offset == 0, half, offset > 0)
    assert sorted(path.stat().st_size for path in (small_disk / "output").iterdir()) == [40_000]
    (lost, again) = [line for line in collector.close() if "missing" in line]
    assert "No space left" in lost
    assert "No space left" in again


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mkfs.btrfs") is None, reason="mounts a disk with a quota"
)
def test_a_quota_that_is_used_up_on_a_node_is_the_named_cause(bench: Bench) -> None:
    image, disk = bench.place / "image", bench.place / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run(["mkfs.btrfs", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)
    try:
        for step in (["subvolume", "create", f"{disk}/nodes"], ["quota", "enable", str(disk)]):
            subprocess.run(["btrfs", *step], check=True, capture_output=True)
        subprocess.run(["btrfs", "qgroup", "limit", "4M", f"{disk}/nodes"], check=True)
        conf = bench.place / "conf.py"
        conf.write_text(conf.read_text().replace(str(bench.place / "nodes"), f"{disk}/nodes"))
        (bench.place / "ws/data").write_bytes(os.urandom(8 << 20))
        done = bench.run("-p", "ws", "--conf=conf.py", "--mode=collective")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert done.returncode == 4, done.stdout + done.stderr
    assert f"your disk quota for {disk}/nodes/node_0 is exhausted; remove files" in done.stdout


class Removing(Digests):
    """Digests of a workspace in which another program removes a file before it is read."""

    def of(self, files: Iterable[tuple[str, os.stat_result]]) -> dict[str, Hashed | OSError]:
        listed = list(files)
        os.unlink(next(path for path, _ in listed if path.endswith(".swp")))
        return super().of(listed)


def test_a_file_that_is_removed_while_the_workspace_is_read_is_not_sent(tmp_path: Path) -> None:
    for name in (".train.py.swp", "train.py"):
        (tmp_path / name).write_text("x")
    assert [entry.path for entry in workspace_package(tmp_path, digests=Removing(None)).entries] == [
        "train.py"
    ]


def test_a_workspace_that_cannot_be_sent_is_refused_before_its_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "away").symlink_to("/etc")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 42)  # reading it would take an hour
    with pytest.raises(WorkspaceError, match=r"away is a link.*\n.*pipe is a named pipe"):
        workspace_package(tmp_path)


def test_a_step_of_removing_a_directory_removes_one_file(tmp_path: Path) -> None:
    """An agent sends nothing while it removes a file; a directory can have any number of files."""
    (tmp_path / "job").mkdir()
    for number in range(5):
        (tmp_path / "job" / str(number)).touch()
    left = [len(list((tmp_path / "job").iterdir())) for _ in disk.removing([str(tmp_path / "job")])]
    assert left == [4, 3, 2, 1, 0]
    assert not (tmp_path / "job").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user")
def test_directories_without_permissions_are_removed_with_their_job() -> None:
    top = Path(tempfile.mkdtemp())
    try:
        for name, mode in (("job/closed", 0o000), ("job/read-only/inside", 0o500), ("mine", 0o700)):
            (top / name).mkdir(parents=True)
            (top / name / "file").write_text("x")
            (top / name).chmod(mode)
        (top / "job/read-only/link").symlink_to(top / "mine")
        for name in ("job/read-only", "job"):
            (top / name).chmod(0o500)
        for path in (top, *top.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        os.seteuid(65534)
        try:
            disk.remove_tree(str(top / "job"))
        finally:
            os.seteuid(0)
        assert [path.relative_to(top).as_posix() for path in sorted(top.rglob("*"))] == ["mine", "mine/file"]
    finally:
        shutil.rmtree(top)
