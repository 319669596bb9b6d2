# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.errors import WorkspaceError
from paddle_cluster.files import payload
from paddle_cluster.files.dispatch import RUNTIME, Dispatch, DispatchState
from paddle_cluster.files.package import Package, TreeEntry, runtime_package
from paddle_cluster.files.payload import Bundle, bundle
from paddle_cluster.system.digests import DIGEST_SIZE
from tests.launcher.dispatching import RUNTIME_DIR, greeted, run
from tests.runtime.paddle_node.agent.driven_node import Node


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A tree of two files, one of them empty."""
    folder = tmp_path / "tree" / "paddle"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "one.py").write_text("print(1)\n")
    return folder.parent


def packed(tree: Path, folder: Path, later_s: float = 60.0) -> Bundle:
    """The bundle, by a clock that is ahead: the files are old by then."""
    return bundle(tree, folder, lambda: time.time() + later_s)


def test_the_same_tree_is_packed_once(small: Path, tmp_path: Path) -> None:
    first = packed(small, tmp_path / "kept")
    (kept,) = (tmp_path / "kept").iterdir()
    written = kept.stat().st_mtime_ns
    assert packed(small, tmp_path / "kept") == first
    assert kept.stat().st_mtime_ns == written


def test_half_a_kept_bundle_is_packed_anew(small: Path, tmp_path: Path) -> None:
    first = packed(small, tmp_path / "kept")
    (kept,) = (tmp_path / "kept").iterdir()
    os.truncate(kept, kept.stat().st_size - 1)
    assert packed(small, tmp_path / "kept") == first


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_could_have_written_is_not_sent(small: Path, tmp_path: Path, mode: int) -> None:
    right = packed(small, tmp_path / "kept")
    (theirs,) = (tmp_path / "kept").iterdir()
    content = b"another bundle"
    theirs.write_bytes(hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest() + content)
    theirs.chmod(mode)
    assert packed(small, tmp_path / "kept") == right


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_another_user_put_there_is_not_sent(small: Path, tmp_path: Path) -> None:
    right = packed(small, tmp_path / "kept")
    (theirs,) = (tmp_path / "kept").iterdir()
    content = b"another bundle"
    theirs.write_bytes(hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest() + content)
    os.chown(theirs, 65534, 65534)
    assert packed(small, tmp_path / "kept") == right


def test_a_pipe_in_the_place_of_a_kept_bundle_is_not_waited_for(small: Path, tmp_path: Path) -> None:
    right = packed(small, tmp_path / "kept")
    (kept,) = (tmp_path / "kept").iterdir()
    kept.unlink()
    os.mkfifo(kept)
    assert packed(small, tmp_path / "kept") == right


def test_a_bundle_that_cannot_be_kept_is_packed_all_the_same(small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert packed(small, tmp_path / "file" / "kept") == packed(small, tmp_path / "kept")


def test_a_changed_file_is_packed_anew(small: Path, tmp_path: Path) -> None:
    first = packed(small, tmp_path / "kept")
    (small / "paddle/one.py").write_text("print(2)\n")
    second = packed(small, tmp_path / "kept")
    assert (second.digest != first.digest, second.items) == (True, first.items)
    (small / "paddle/one.py").chmod(0o700)
    assert packed(small, tmp_path / "kept").digest != second.digest


def test_what_has_just_changed_is_not_kept(small: Path, tmp_path: Path) -> None:
    assert packed(small, tmp_path / "kept", 0.0).items == 3
    assert not (tmp_path / "kept").exists()


def test_a_file_that_changes_while_it_is_packed_is_refused(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(root: Path) -> Package:
        found = runtime_package(root)
        (small / "paddle/one.py").write_text("print(2)\n")
        return found

    monkeypatch.setattr(payload, "runtime_package", changed)
    with pytest.raises(WorkspaceError, match=r"one\.py is being modified"):
        packed(small, tmp_path / "kept")


def test_the_runtime_is_published_once_and_found_again(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    runtime = bundle(RUNTIME_DIR, tmp_path)
    dest = f".paddle/runtime/{runtime.digest}"

    def dispatched(node: Node) -> Dispatch:
        size = runtime.unpacked_bytes
        return run(node, Dispatch(node.link, runtime.package, tree=RUNTIME, dest=dest, unpacked_bytes=size))

    tree = runtime_package(RUNTIME_DIR)
    first = greeted(make_node)
    done = dispatched(first)
    assert done.state is DispatchState.DONE, done.error
    sent = {entry.path: RUNTIME_DIR.joinpath(entry.path).read_bytes() for entry in tree.files}
    there = {str(path.relative_to(done.path)): path.read_bytes() for path in Path(done.path).rglob("*.*")}
    assert there == sent
    again = dispatched(greeted(make_node, first.root))
    assert (again.state, again.path, again.bytes_total) == (DispatchState.DONE, done.path, 0)


def test_a_bundle_that_is_none_is_told_and_leaves_nothing(make_node: Callable[..., Node]) -> None:
    content = b"no bundle"
    digest = hashlib.blake2b(content, digest_size=DIGEST_SIZE).hexdigest()
    package = Package((TreeEntry("bundle", 0o600, len(content), digest, content=content),))
    node = greeted(make_node)
    failed = run(
        node, Dispatch(node.link, package, tree=RUNTIME, dest=".paddle/runtime/x", unpacked_bytes=100)
    )
    assert failed.state is DispatchState.FAILED
    assert "cannot unpack" in str(failed.error)
    assert list((node.root / ".paddle/runtime").iterdir()) == list((node.root / ".paddle/building").iterdir())
