# SPDX-License-Identifier: Apache-2.0
"""Agents for one test, or for tests that run beside each other."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.beside import Place
from tests.runtime.paddle_node.agent.driven_node import Node, eventually, kill_all, marked, unmarked

MakeNode = Callable[..., Node]


@contextlib.contextmanager
def nodes_below(folder: Path) -> Iterator[MakeNode]:
    """Yields what starts agents; afterwards none of their jobs' processes may live."""
    nodes: list[Node] = []

    def make(python: str = sys.executable, node_id: int = 0, job_id: str = "", **more: Any) -> Node:
        root = folder / f"root-{len(nodes)}"
        nodes.append(Node(root, job_id or f"JOB-{secrets.token_hex(6)}", python, node_id, **more))
        return nodes[-1]

    try:
        yield make
    finally:
        for node in nodes:
            node.close()
    job_ids = {node.job_id for node in nodes}
    try:
        for job_id in job_ids:
            eventually(partial(unmarked, job_id), f"every process of {job_id} is gone")
    except BaseException:
        kill_all([pid for job_id in job_ids for pid in marked(job_id)])
        raise


@contextlib.contextmanager
def own_nodes() -> Iterator[Place]:
    """Yields what makes a place: a function that starts agents there."""

    @contextlib.contextmanager
    def place(folder: Path) -> Iterator[tuple[MakeNode]]:
        with nodes_below(folder) as make:
            yield (make,)

    yield place


def ready_node(make_node: MakeNode, lease_s: float = 30.0) -> Node:
    """An agent that was greeted and has a job directory."""
    made = make_node()
    made.greet(lease_s)
    made.adopt()
    return made
