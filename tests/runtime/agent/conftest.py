# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.runtime.agent.node import Node, eventually, kill_all, marked, unmarked


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Starts agents; afterwards none of their jobs' processes may live."""
    nodes: list[Node] = []

    def make(python: str = sys.executable, node_id: int = 0, job_id: str = "") -> Node:
        root = tmp_path / f"root-{len(nodes)}"
        nodes.append(Node(root, job_id or f"JOB-{secrets.token_hex(6)}", python, node_id))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()
    job_ids = {node.job_id for node in nodes}
    try:
        for job_id in job_ids:
            eventually(partial(unmarked, job_id), f"every process of {job_id} is gone")
    finally:
        kill_all([pid for job_id in job_ids for pid in marked(job_id)])


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    """An agent that was greeted and has a job directory."""
    made = make_node()
    made.greet()
    made.adopt()
    return made
