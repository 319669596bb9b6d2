# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.files.dispatch import DispatchState
from paddle_cluster.files.package import workspace_package
from tests.launcher.dispatching import greeted, to_workspace
from tests.runtime.paddle_node.agent.driven_node import Node


@pytest.mark.parametrize("small_disk", ["nr_inodes=120"], indirect=True)
def test_a_disk_without_free_inodes_is_not_called_full_of_bytes(
    make_node: Callable[..., Node], tmp_path: Path, small_disk: Path
) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    for number in range(300):
        (workspace / f"f{number}").write_text(f"{number}")
    dispatch = to_workspace(greeted(make_node, small_disk), workspace_package(workspace))
    assert dispatch.state is DispatchState.FAILED
    assert "free inodes" in str(dispatch.error)
    assert "needed" not in str(dispatch.error)
