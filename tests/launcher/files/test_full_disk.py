# SPDX-License-Identifier: Apache-2.0
"""A dispatch to a node whose disk is full, or fills up meanwhile."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddle_cluster.connection.link import Link
from paddle_cluster.connection.send_queue import Frame
from paddle_cluster.files.dispatch import WORKSPACE, Dispatch, DispatchState
from paddle_cluster.files.package import workspace_package
from tests.launcher.dispatching import greeted, run, to_workspace
from tests.runtime.paddle_node.agent.driven_node import Node


@pytest.mark.parametrize("small_disk", ["size=1m"], indirect=True)
def test_a_full_disk_is_told_with_what_is_missing_and_left_clean(
    make_node: Callable[..., Node], root: Path, small_disk: Path
) -> None:
    node = greeted(make_node, small_disk)
    dispatch = to_workspace(node, workspace_package(root))
    assert dispatch.state is DispatchState.FAILED
    assert node.link.name in str(dispatch.error)
    assert re.search(r"has [\d.]+ MB free, but [\d.]+ MB are needed", str(dispatch.error))
    assert [path for path in small_disk.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("small_disk", ["size=1m"], indirect=True)
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
