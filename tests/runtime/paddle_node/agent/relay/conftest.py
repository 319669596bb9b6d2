# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from paddle_cluster.system import job_certificate
from paddle_cluster.system.job_certificate import Certificate
from tests.runtime.paddle_node.agent.driven_node import Node
from tests.runtime.paddle_node.agent.own_nodes import MakeNode
from tests.runtime.paddle_node.agent.relay import relay_nodes
from tests.runtime.paddle_node.agent.relay.relay_nodes import Address, Liar


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return job_certificate.make()


@pytest.fixture
def make_chain(make_node: MakeNode, certificate: Certificate) -> Callable[..., list[Node]]:
    """Starts nodes that lack some files, the first of them the head; each but the head asks those before it."""
    return partial(relay_nodes.make, make_node, certificate)


@pytest.fixture
def lone(make_node: MakeNode, certificate: Certificate) -> tuple[Node, Address]:
    """A node that lacks BIG, and where it listens."""
    return relay_nodes.lone(make_node, certificate)


@pytest.fixture
def make_liar(certificate: Certificate) -> Iterator[Callable[[bytes], Liar]]:
    liars: list[Liar] = []

    def make(says: bytes) -> Liar:
        liars.append(Liar(certificate, says))
        return liars[-1]

    yield make
    for liar in liars:
        liar.close()
