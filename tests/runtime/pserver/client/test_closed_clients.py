# SPDX-License-Identifier: Apache-2.0
"""Clients and readers that were closed: each call says so; and a port that has nothing but growing tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from paddle.errors import PaddleError, PserverError
from paddle.pserver import Client, GrowingTable, OptimizerSpec, Reader
from tests.runtime.pserver.neutral_job import client, server
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

SGD = OptimizerSpec("sgd", learning_rate=0.1)
W = np.ones(4, np.float32)
ROWS = (np.array([1, 2]), np.ones((2, 3), np.float32))
CALLS: dict[str, Callable[[Client], Any]] = {
    "create": lambda each: each.create({"w": W}, SGD),
    "push": lambda each: each.push({"w": W}),
    "push_pull": lambda each: each.push_pull({"w": W}, {"w": W.copy()}),
    "push_pull of rows": lambda each: each.push_pull({"users": ROWS}, {}),
    "pull": lambda each: each.pull({"w": W.copy()}),
    "pull_rows": lambda each: each.pull_rows("users", ROWS[0]),
    "gradient_array": lambda each: each.gradient_array("w"),
    "value_array": lambda each: each.value_array("w"),
    "barrier": lambda each: each.barrier(),
}


@pytest.fixture(scope="module")
def process() -> Iterator[PserverProcess]:
    """A server with a port for tables."""
    with server(1, "--ports_num_for_sparse=1") as found:
        yield found


@pytest.fixture(scope="module", params=[True, False], ids=["within the node", "sent"])
def closed(process: PserverProcess, request: pytest.FixtureRequest) -> Client:
    """A client that took a step and left."""
    with client(process, 0, 1, within_node=request.param) as each:
        each.create({"w": W, "users": GrowingTable(3)}, SGD)
        each.push_pull({"w": W, "users": ROWS}, {"w": W.copy()})
    return each


@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_a_closed_client_says_that_it_is_closed(closed: Client, call: str) -> None:
    with pytest.raises(PserverError, match=r"this client is closed"):
        CALLS[call](closed)


def test_a_client_that_was_closed_before_it_created_anything_says_so(process: PserverProcess) -> None:
    each = client(process, 0, 1)
    each.close()
    each.close()
    for name, call in CALLS.items():
        with pytest.raises(PaddleError, match="this client is closed"):
            call(each)
        assert name


def test_a_closed_reader_says_so(process: PserverProcess, closed: Client) -> None:
    assert closed.trainer_id == 0
    with Reader.connect(process.endpoints, process.sparse_endpoints, job_key=KEY) as reader:
        reader.pull({"w": W.copy()})
    for call in (
        lambda: reader.pull({"w": W.copy()}),
        lambda: reader.pull_rows("users", ROWS[0]),
        lambda: reader.version(),
    ):
        with pytest.raises(PaddleError, match="closed"):
            call()


@pytest.mark.parametrize("dense", [{}, {"w": W}], ids=["tables alone", "a dense tensor too"])
def test_a_job_with_growing_tables_warns_of_nothing(dense: dict[str, Any]) -> None:
    process = server(1, "--ports_num=1", "--ports_num_for_sparse=1")
    with process:
        with client(process, 0, 1) as each:
            each.create({**dense, "users": GrowingTable(3)}, SGD)
            each.push({"users": ROWS})
        _, log = process.end()
    assert re.findall("^W.*", log, re.MULTILINE) == [], log
