# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.files.dispatch import DispatchState
from paddle_cluster.files.package import workspace_package
from tests.launcher.dispatching import greeted, to_workspace
from tests.runtime.paddle_node.agent.driven_node import Node


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a disk with few inodes")
def test_a_disk_without_free_inodes_is_not_called_full_of_bytes(
    make_node: Callable[..., Node], tmp_path: Path
) -> None:
    workspace, disk = tmp_path / "ws", tmp_path / "disk"
    for folder in (workspace, disk):
        folder.mkdir()
    for number in range(300):
        (workspace / f"f{number}").write_text(f"{number}")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=120,mode=0700", "tmpfs", str(disk)], check=True)
    try:
        dispatch = to_workspace(greeted(make_node, disk), workspace_package(workspace))
        assert dispatch.state is DispatchState.FAILED
        assert "free inodes" in str(dispatch.error)
        assert "needed" not in str(dispatch.error)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
