# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.dispatch import RUNTIME, WORKSPACE, Dispatch, DispatchState
from launcher.link import Frame, Link, MessageEvent
from launcher.package import Package, runtime_package, workspace_package
from tests.runtime.agent.node import Node, eventually

ENDED = (DispatchState.DONE, DispatchState.FAILED)
RUNTIME_DIR = Path(__file__).resolve().parent.parent.parent / "runtime"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with everything in it that is legal."""
    folder = tmp_path / "ws"
    (folder / "data" / "empty").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "train.py").chmod(0o755)
    (folder / "a b\n-x").write_text("odd name")
    (folder / "日本").write_text("unicode")
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")).write_text("latin")
    (folder / "copy.py").write_text("print(1)\n")
    (folder / "nothing").touch()
    (folder / "data" / "big").write_bytes(random.Random(1).randbytes(3_500_001))
    (folder / "data" / "secret").write_text("x")
    (folder / "data" / "secret").chmod(0o600)
    (folder / "link").symlink_to("data/../train.py")
    return folder


def greeted(make_node: Callable[..., Node], root: Path | None = None) -> Node:
    node = make_node()
    if root is not None:
        node.root = root
    node.greet()
    return node


def run(node: Node, dispatch: Dispatch) -> Dispatch:
    """Drive a dispatch to its end."""

    def ended(event: Any) -> bool:
        dispatch.handle(event)
        return dispatch.state in ENDED

    dispatch.start()
    node.until(ended, 60, f"the end of {dispatch.tree}")
    return dispatch


def to_workspace(node: Node, package: Package | None, dest: str = "JOB1", **more: Any) -> Dispatch:
    given = {"files": {"nodefile": "3\n"}, "collect": ["log", "output"], **more}
    return run(node, Dispatch(node.link, package, tree=WORKSPACE, dest=dest, **given))


def tree(folder: Path) -> dict[bytes, object]:
    """Everything below a directory: modes, link targets and contents."""
    found: dict[bytes, object] = {}
    for top, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(top, name)
            relative = os.path.relpath(path, os.fsencode(folder))
            if os.path.islink(path):
                found[relative] = os.readlink(path)
            elif os.path.isdir(path):
                found[relative] = os.stat(path).st_mode
            else:
                found[relative] = (os.stat(path).st_mode, Path(os.fsdecode(path)).read_bytes())
    return found


def test_a_workspace_arrives_byte_for_byte(make_node: Callable[..., Node], root: Path) -> None:
    node = greeted(make_node)
    dispatch = to_workspace(node, workspace_package(root), files={}, collect=[])
    assert dispatch.state is DispatchState.DONE, dispatch.error
    assert dispatch.path == str(node.root / "JOB1")
    assert tree(node.root / "JOB1") == tree(root)


def test_nodefile_and_collected_directories_are_there_from_the_start(
    make_node: Callable[..., Node], root: Path
) -> None:
    node = greeted(make_node)
    to_workspace(node, workspace_package(root))
    assert (node.root / "JOB1" / "nodefile").read_text() == "3\n"
    assert (node.root / "JOB1" / "log").is_dir()
    assert (node.root / "JOB1" / "output").is_dir()


def test_each_content_travels_once(make_node: Callable[..., Node], root: Path) -> None:
    package = workspace_package(root)
    dispatch = to_workspace(greeted(make_node), package)
    unique = sum(entry.size for entry in package.by_digest.values())
    assert dispatch.bytes_sent == dispatch.bytes_total == unique < package.total_bytes


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
    with (node.root / "JOB1" / "train.py").open("r+") as file:
        file.write("evil")
    second = greeted(make_node, node.root)
    to_workspace(second, workspace_package(root), dest="JOB2")
    assert (node.root / "JOB2" / "train.py").read_text() == "print(1)\n"


def test_only_the_user_can_read_the_cache(make_node: Callable[..., Node], root: Path) -> None:
    node = greeted(make_node)
    to_workspace(node, workspace_package(root))
    cache = node.root / ".paddle" / "cache"
    assert {path.stat().st_mode & 0o077 for path in [cache, *cache.rglob("*")]} == {0}


def test_the_runtime_is_published_once_and_found_again(make_node: Callable[..., Node]) -> None:
    package = runtime_package(RUNTIME_DIR)
    first = greeted(make_node)
    dest = f".paddle/runtime/{package.digest}"
    done = run(first, Dispatch(first.link, package, tree=RUNTIME, dest=dest))
    assert Path(done.path, "paddle", "__init__.py").is_file()
    second = greeted(make_node, first.root)
    again = run(second, Dispatch(second.link, package, tree=RUNTIME, dest=dest))
    assert (again.state, again.path, again.bytes_total) == (DispatchState.DONE, done.path, 0)


def test_a_runtime_s_files_are_those_of_the_cache_and_one_that_was_changed_is_sent_anew(
    make_node: Callable[..., Node],
) -> None:
    package = runtime_package(RUNTIME_DIR)
    first = greeted(make_node)
    done = run(first, Dispatch(first.link, package, tree=RUNTIME, dest=".paddle/runtime/one"))
    changed = Path(done.path, "paddle", "env.py")
    assert changed.stat().st_nlink == 2
    with changed.open("ab") as file:
        file.write(b"# changed")
    second = greeted(make_node, first.root)
    again = run(second, Dispatch(second.link, package, tree=RUNTIME, dest=".paddle/runtime/two"))
    original = RUNTIME_DIR / "paddle" / "env.py"
    assert Path(again.path, "paddle", "env.py").read_bytes() == original.read_bytes()
    assert again.bytes_total == original.stat().st_size


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
            dispatch.handle(event)
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


def test_an_interrupted_dispatch_leaves_no_half_file_and_goes_on_from_there(
    make_node: Callable[..., Node], root: Path
) -> None:
    generator = random.Random(7)
    for index in range(40):
        (root / "data" / f"part{index}").write_bytes(generator.randbytes(1_000_000))
    package = workspace_package(root)
    first = greeted(make_node)
    dispatch = Dispatch(first.link, package, tree=WORKSPACE, dest="JOB1")
    dispatch.start()
    first.until(dispatch.handle, 20, "lacking")
    eventually(lambda: dispatch.bytes_sent > dispatch.bytes_total // 2, "half of it was sent")
    first.close()
    eventually(lambda: not list((first.root / ".paddle/cache/incoming").iterdir()), "half files are gone")
    assert not (first.root / "JOB1").exists()
    second = greeted(make_node, first.root)
    again = to_workspace(second, package)
    assert again.state is DispatchState.DONE
    assert again.bytes_total < dispatch.bytes_total * 0.7


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small disk")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_told_with_what_is_missing_and_left_clean(
    make_node: Callable[..., Node], root: Path, small_disk: Path
) -> None:
    node = greeted(make_node, small_disk)
    dispatch = to_workspace(node, workspace_package(root))
    assert dispatch.state is DispatchState.FAILED
    assert node.link.name in str(dispatch.error)
    assert "bytes" in str(dispatch.error)
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []


def test_a_disk_that_fills_up_while_files_arrive_is_told_and_left_clean(
    make_node: Callable[..., Node], tmp_path: Path, small_disk: Path
) -> None:
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / "data").write_bytes(random.Random(3).randbytes(400_000))
    node = greeted(make_node, small_disk)
    link: Any = _Interposed(node.link, lambda: (small_disk / "ballast").write_bytes(b"x" * 700_000))
    dispatch = run(node, Dispatch(link, workspace_package(ws), tree=WORKSPACE, dest="JOB1"))
    assert dispatch.state is DispatchState.FAILED
    assert "is full" in str(dispatch.error)
    left = [path.name for path in small_disk.rglob("*") if path.is_file() and path.name != "ballast"]
    assert left == []


class _Interposed:
    """A link on which something happens before the first piece of a file goes out."""

    def __init__(self, link: Link, before: Callable[[], object]) -> None:
        self._link = link
        self._before = before
        self.name = link.name

    def send_stream(self, frames: Iterable[Frame]) -> None:
        self._link.send_stream(self._after(frames))

    def _after(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        for frame in frames:
            if frame[0] == "blob":
                self._before()
            yield frame


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
    assert "/no/such/dir is no directory" in str(dispatch.error)


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
    fields = {"tree": WORKSPACE, "digests": digests, "final": True}
    assert dispatch.handle(MessageEvent(0, "lacking", fields, b""))
    assert dispatch.state is DispatchState.FAILED
    assert "not offered" in str(dispatch.error)
