# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.connection.link import Unreadable, heard
from paddle_cluster.files.dispatch import RUNTIME, WORKSPACE, Dispatch, DispatchState
from paddle_cluster.files.package import workspace_package
from tests.launcher.dispatching import ENDED, answered, greeted, to_workspace, tree
from tests.runtime.paddle_node.agent.driven_node import Node, eventually, lives


def test_a_workspace_arrives_byte_for_byte(make_node: Callable[..., Node], root: Path) -> None:
    node = greeted(make_node)
    dispatch = to_workspace(node, workspace_package(root), files={}, collect=[])
    assert dispatch.state is DispatchState.DONE, dispatch.error
    assert dispatch.path == str(node.root / "JOB1")
    assert tree(node.root / "JOB1") == tree(root)


def test_files_keep_the_time_when_they_were_modified(make_node: Callable[..., Node], root: Path) -> None:
    node = greeted(make_node)
    old, soon = 1_000_000_000_123_456_789, time.time_ns() + 3600 * 10**9
    os.utime(root / "data/big", ns=(old, old))
    os.utime(root / "train.py", ns=(old + 1, old + 1))
    os.utime(root / "copy.py", ns=(soon, soon))
    for dest in ("JOB1", "JOB2"):  # the second gets copies of what the first one was lent
        dispatch = to_workspace(node, workspace_package(root), dest=dest)
        assert (node.root / dest / "data/big").stat().st_mtime_ns == old
        assert (node.root / dest / "train.py").stat().st_mtime_ns == old + 1
    assert dispatch.bytes_sent == 0, "an old file is no file that nobody uses"
    again = to_workspace(greeted(make_node, node.root), workspace_package(root), dest="JOB3")
    assert again.bytes_sent == 0


def test_a_link_to_an_absolute_path_arrives_where_it_is_meant(
    make_node: Callable[..., Node], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted/x").write_text("theirs")
    (root / "mnt").symlink_to(tmp_path / "mounted")
    node = greeted(make_node)
    assert to_workspace(node, workspace_package(root, keep_links=True)).state is DispatchState.DONE
    assert (node.root / "JOB1/mnt").readlink() == tmp_path / "mounted"
    assert (node.root / "JOB1/mnt/x").read_text() == "theirs"


def test_nodefile_and_collected_directories_are_there_from_the_start(
    make_node: Callable[..., Node], root: Path
) -> None:
    node = greeted(make_node)
    to_workspace(node, workspace_package(root))
    assert (node.root / "JOB1" / "nodefile").read_text() == "3\n"
    assert (node.root / "JOB1" / "log").is_dir()
    assert (node.root / "JOB1" / "output").is_dir()


def test_a_nodefile_of_the_workspace_gives_way_and_stays_in_the_cache_as_it_was(
    make_node: Callable[..., Node], root: Path
) -> None:
    (root / "nodefile").write_text("mine\n")
    node = greeted(make_node)
    to_workspace(node, workspace_package(root))
    assert (node.root / "JOB1" / "nodefile").read_text() == "3\n"
    assert "mine\n" in [
        file.read_text() for file in (node.root / ".paddle/cache").glob("?/*") if file.stat().st_size == 5
    ]


def test_each_content_travels_once(make_node: Callable[..., Node], root: Path) -> None:
    package = workspace_package(root)
    dispatch = to_workspace(greeted(make_node), package)
    unique = sum(entry.size for entry in package.by_digest.values())
    assert dispatch.bytes_sent == dispatch.bytes_total == unique < package.total_bytes


def test_a_node_tells_how_much_has_come(make_node: Callable[..., Node], root: Path) -> None:
    node = greeted(make_node)
    package = workspace_package(root)
    dispatch = Dispatch(node.link, package, tree=WORKSPACE, dest="JOB1", hold=True)
    dispatch.start()
    node.until(
        lambda event: answered(dispatch, event) and dispatch.state is DispatchState.HELD, 60, "what it lacks"
    )
    large = max(package.files, key=lambda entry: entry.size)
    dispatch.send_for_fetch([large.digest])  # and the rest never
    assert node.expect("arrived").fields == {"bytes": large.size}


def test_an_unchanged_workspace_costs_its_manifest_alone(make_node: Callable[..., Node], root: Path) -> None:
    first = greeted(make_node)
    to_workspace(first, workspace_package(root))
    second = greeted(make_node, first.root)
    package = workspace_package(root)
    before = second.link.bytes_sent
    dispatch = to_workspace(second, package, dest="JOB2")
    assert dispatch.bytes_total == 0
    assert second.link.bytes_sent - before < sum(map(len, package.manifest_parts())) + 1000
    assert tree(second.root / "JOB2") == tree(first.root / "JOB1")


def test_a_jobs_changes_to_its_files_do_not_reach_the_next_job(
    make_node: Callable[..., Node], root: Path
) -> None:
    node = greeted(make_node)
    to_workspace(node, workspace_package(root))
    for name in ("train.py", "data/big"):
        with (node.root / "JOB1" / name).open("r+") as file:
            file.write("evil")
    second = greeted(make_node, node.root)
    to_workspace(second, workspace_package(root), dest="JOB2")
    for name in ("train.py", "data/big"):
        assert (node.root / "JOB2" / name).read_bytes() == (root / name).read_bytes()


def test_only_the_user_can_read_the_cache(make_node: Callable[..., Node], root: Path) -> None:
    node = greeted(make_node)
    to_workspace(node, workspace_package(root))
    cache = node.root / ".paddle" / "cache"
    folders = [path for path in [cache, *cache.rglob("*")] if path.is_dir()]
    assert {folder.stat().st_mode & 0o077 for folder in folders} == {0}


def test_no_two_jobs_share_a_file(make_node: Callable[..., Node], root: Path) -> None:
    node = greeted(make_node)
    files = [node.root / job / "data/big" for job in ("JOB1", "JOB2", "JOB3")]
    to_workspace(node, workspace_package(root))
    for job in ("JOB2", "JOB3"):
        to_workspace(greeted(make_node, node.root), workspace_package(root), dest=job)
    inodes = {file.stat().st_ino for file in files}
    assert len(inodes) == 3
    (cached,) = {file.stat().st_ino for file in (node.root / ".paddle/cache").rglob("*")} & inodes
    assert cached == files[0].stat().st_ino  # what came for the first job lies on the disk once


def test_trees_of_different_jobs_may_lie_apart_on_the_disk(
    make_node: Callable[..., Node], root: Path
) -> None:
    node = greeted(make_node)
    to_workspace(node, workspace_package(root))
    folder = str(node.root / ".paddle/building")
    told = subprocess.run(
        ["lsattr", "-d", folder], capture_output=True, text=True, check=False
    ).stdout.split()
    if not told or "e" not in told[0]:
        pytest.skip("no ext4 here")
    assert "T" in told[0]


def test_what_a_job_wrote_through_mapped_memory_reaches_no_later_one(
    make_node: Callable[..., Node], root: Path, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path
    ) as shared:
        to_workspace(greeted(make_node, Path(shared)), workspace_package(root))
        with Path(shared, "JOB1/data/big").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[0] = 255 - mapped[0]
        to_workspace(greeted(make_node, Path(shared)), workspace_package(root), dest="JOB2")
        assert Path(shared, "JOB2/data/big").read_bytes() == (root / "data/big").read_bytes()


def test_what_a_job_wrote_just_before_its_end_reaches_no_later_one(
    make_node: Callable[..., Node], root: Path
) -> None:
    first = greeted(make_node)
    to_workspace(first, workspace_package(root))
    (root / "new.py").write_text("pass\n")
    package = workspace_package(root)
    second = greeted(make_node, first.root)
    dispatch = Dispatch(second.link, package, tree=WORKSPACE, dest="JOB2", hold=True)

    def reached(*states: DispatchState) -> Callable[[Any], bool]:
        return lambda event: answered(dispatch, event) and dispatch.state in states

    dispatch.start()
    second.until(reached(DispatchState.HELD), 60, "what the node lacks")  # the others were found right
    with (first.root / "JOB1" / "data/big").open("r+") as file:
        file.write("evil")
    shutil.rmtree(first.root / "JOB1")
    dispatch.send()
    second.until(reached(*ENDED), 60, "the end")
    assert dispatch.state is DispatchState.FAILED
    assert "start again" in str(dispatch.error)
    to_workspace(greeted(make_node, first.root), package, dest="JOB3")
    assert (first.root / "JOB3" / "data/big").read_bytes() == (root / "data/big").read_bytes()


def _over(node: Node) -> None:
    """The job of a node ends as jobs do."""
    _, agent = node.pids()
    node.link.send("bye")
    node.expect("goodbye")
    node.link.close()
    eventually(lambda: not lives(agent), "the agent has ended")


def _read_by(node: Node) -> int:
    """Bytes that an agent has read from anywhere."""
    return int(Path(f"/proc/{node.pids()[1]}/io").read_text().split()[1])


def test_a_file_whose_job_is_over_and_gone_is_not_read_again(
    make_node: Callable[..., Node], root: Path
) -> None:
    first = greeted(make_node)
    to_workspace(first, workspace_package(root))
    lent = (first.root / "JOB1/data/big").stat()
    _over(first)
    shutil.rmtree(first.root / "JOB1")
    second = greeted(make_node, first.root)
    before = _read_by(second)
    to_workspace(second, workspace_package(root), dest="JOB2")
    assert _read_by(second) - before < lent.st_size / 2
    assert (first.root / "JOB2/data/big").stat().st_ino == lent.st_ino


@pytest.mark.parametrize("until_the_end", [False, True])
def test_what_a_job_wrote_and_hid_reaches_no_later_one(
    make_node: Callable[..., Node], root: Path, until_the_end: bool
) -> None:
    first = greeted(make_node)
    to_workspace(first, workspace_package(root))
    path = first.root / "JOB1/data/big"
    before = path.stat()
    with path.open("r+b", buffering=0) as file:
        if until_the_end:  # what holds it open may be no process of the job
            _over(first)
        file.write(b"evil")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    if not until_the_end:
        _over(first)
    shutil.rmtree(first.root / "JOB1")
    to_workspace(greeted(make_node, first.root), workspace_package(root), dest="JOB2")
    assert (first.root / "JOB2/data/big").read_bytes() == (root / "data/big").read_bytes()


def test_both_trees_can_travel_at_the_same_time(make_node: Callable[..., Node], root: Path) -> None:
    node = greeted(make_node)
    package = workspace_package(root)  # the same content in both: each dispatch sends what it needs
    dispatches = [
        Dispatch(node.link, package, tree=WORKSPACE, dest="JOB1"),
        Dispatch(node.link, package, tree=RUNTIME, dest=".paddle/runtime/x"),
    ]
    for dispatch in dispatches:
        dispatch.start()

    def ended(event: Any) -> bool:
        for dispatch in dispatches:
            answered(dispatch, event)
        return all(dispatch.state in ENDED for dispatch in dispatches)

    node.until(ended, 60, "both trees")
    assert [dispatch.state for dispatch in dispatches] == 2 * [DispatchState.DONE], dispatches[1].error
    assert tree(node.root / "JOB1") == tree(node.root / ".paddle/runtime/x") == tree(root)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"y" * path.stat().st_size),
        lambda path: path.write_bytes(b"short"),
        lambda path: path.write_bytes(path.read_bytes() + b"more"),
        lambda path: path.unlink(),
    ],
    ids=["rewritten", "truncated", "grown", "removed"],
)
def test_a_file_that_changes_after_it_was_listed_is_noticed(
    make_node: Callable[..., Node], root: Path, change: Callable[[Path], None]
) -> None:
    package = workspace_package(root)
    change(root / "data" / "big")
    node = greeted(make_node)
    dispatch = to_workspace(node, package)
    grown_only = (root / "data" / "big").exists() and (root / "data" / "big").stat().st_size > 3_500_001
    if grown_only:  # what was listed is still there, byte for byte
        assert dispatch.state is DispatchState.DONE
        assert (node.root / "JOB1" / "data" / "big").stat().st_size == 3_500_001
    else:
        assert dispatch.state is DispatchState.FAILED
        assert "data/big" in str(dispatch.error)
        assert not (node.root / "JOB1").exists()


def test_a_tree_that_was_published_just_before_the_connection_broke_is_found(
    make_node: Callable[..., Node], root: Path
) -> None:
    first = greeted(make_node)
    to_workspace(first, workspace_package(root))
    second = greeted(make_node, first.root)
    again = to_workspace(second, workspace_package(root))
    assert (again.state, again.bytes_total) == (DispatchState.DONE, 0)


def test_a_sparse_file_stays_sparse(make_node: Callable[..., Node], root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(64 << 20)
        file.write(b"end")
    node = greeted(make_node)
    to_workspace(node, workspace_package(root))
    arrived = node.root / "JOB1" / "sparse"
    assert arrived.read_bytes() == (root / "sparse").read_bytes()
    assert arrived.stat().st_blocks * 512 < 8 << 20


def test_a_directory_that_is_there_is_taken_as_it_is(make_node: Callable[..., Node], tmp_path: Path) -> None:
    job_dir = tmp_path / "mine"
    (job_dir / "log" / "old").mkdir(parents=True)
    (job_dir / "log" / "train.log").write_text("old")
    (job_dir / "output").mkdir()
    (job_dir / "output" / "model").write_text("kept")
    (job_dir / "train.py").write_text("kept")
    dispatch = to_workspace(greeted(make_node), None, dest=str(job_dir))
    assert (dispatch.state, dispatch.path) == (DispatchState.DONE, str(job_dir))
    assert os.listdir(job_dir / "log") == []
    assert (job_dir / "output" / "model").read_text() == "kept"
    assert (job_dir / "train.py").read_text() == "kept"
    assert (job_dir / "nodefile").read_text() == "3\n"


def test_a_directory_that_is_not_there_is_told(make_node: Callable[..., Node]) -> None:
    dispatch = to_workspace(greeted(make_node), None, dest="/no/such/dir")
    assert "/no/such/dir is not a directory" in str(dispatch.error)


@pytest.mark.parametrize("name", ["log", "nodefile"])
def test_a_link_in_the_users_directory_is_never_followed(
    make_node: Callable[..., Node], tmp_path: Path, name: str
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    job_dir = tmp_path / "mine"
    job_dir.mkdir()
    (job_dir / name).symlink_to(precious if name == "log" else precious / "file")
    dispatch = to_workspace(greeted(make_node), None, dest=str(job_dir))
    assert dispatch.state is DispatchState.FAILED
    assert (precious / "file").read_text() == "kept"


@pytest.mark.parametrize("digests", [None, "abc", [["x"]], [{}], {"a": 1}, ["0" * 64]])
def test_a_node_that_asks_for_what_was_not_offered_fails_alone(
    root: Path, make_node: Callable[..., Node], digests: Any
) -> None:
    node = greeted(make_node)
    dispatch = Dispatch(node.link, workspace_package(root), tree=WORKSPACE, dest="JOB1")
    event = heard(0, "node-0", "lacking", {"tree": WORKSPACE, "digests": digests, "final": True})
    if isinstance(event, Unreadable):
        assert "lacking.digests" in str(event.error)
        return
    dispatch.handle(event.message)
    assert dispatch.state is DispatchState.FAILED
    assert "'lacking' message: " in str(dispatch.error)
