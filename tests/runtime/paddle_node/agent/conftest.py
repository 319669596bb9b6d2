# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runtime.paddle_node.agent.driven_node import Node
from tests.runtime.paddle_node.agent.own_nodes import nodes_below


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Starts agents; afterwards none of their jobs' processes may live."""
    with nodes_below(tmp_path) as make:
        yield make


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    """An agent that was greeted and has a job directory."""
    made = make_node()
    made.greet()
    made.adopt()
    return made


@pytest.fixture
def idle(make_node: Callable[..., Node]) -> Node:
    made = make_node()
    made.greet()
    return made
