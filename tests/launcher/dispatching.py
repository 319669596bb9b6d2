# SPDX-License-Identifier: Apache-2.0
"""Trees on their way to agents on this machine, for tests of either side."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_cluster.connection.link import MessageEvent
from paddle_cluster.files.dispatch import WORKSPACE, Dispatch, DispatchState
from paddle_cluster.files.package import Package
from paddle_node.contract.to_launcher import Committed, Failed, Lacking
from tests.runtime.paddle_node.agent.driven_node import Node

ENDED = (DispatchState.DONE, DispatchState.FAILED)
RUNTIME_DIR = Path(__file__).resolve().parent.parent.parent / "runtime"


def greeted(make_node: Callable[..., Node], root: Path | None = None) -> Node:
    node = make_node()
    if root is not None:
        node.root = root
    node.greet()
    node.expect("pong")  # all of the agent was sent
    return node


def answered(dispatch: Dispatch, event: Any) -> bool:
    """Hand an answer about its tree on to a dispatch; False if the event is something else."""
    answer = event.message if isinstance(event, MessageEvent) else None
    if not isinstance(answer, Lacking | Committed | Failed) or answer.tree != dispatch.tree:
        return False
    dispatch.handle(answer)
    return True


def run(node: Node, dispatch: Dispatch) -> Dispatch:
    """Drive a dispatch to its end."""

    def ended(event: Any) -> bool:
        answered(dispatch, event)
        return dispatch.state in ENDED

    dispatch.start()
    node.until(ended, 60, f"the end of {dispatch.tree}")
    return dispatch


def to_workspace(node: Node, package: Package | None, dest: str = "JOB1", **more: Any) -> Dispatch:
    given = {"files": {"nodefile": "3\n"}, "collect": ["log", "output"], **more}
    return run(node, Dispatch(node.link, package, tree=WORKSPACE, dest=dest, **given))


def tree(folder: Path) -> dict[bytes, object]:
    """Everything below a directory: its owner's modes, link targets and contents."""
    found: dict[bytes, object] = {}
    for top, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(top, name)
            relative = os.path.relpath(path, os.fsencode(folder))
            if os.path.islink(path):
                found[relative] = os.readlink(path)
            elif os.path.isdir(path):
                found[relative] = os.stat(path).st_mode & ~0o077
            else:
                found[relative] = (os.stat(path).st_mode & ~0o077, Path(os.fsdecode(path)).read_bytes())
    return found
