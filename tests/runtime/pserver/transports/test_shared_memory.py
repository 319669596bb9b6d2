# SPDX-License-Identifier: Apache-2.0
"""Who finds the memory that a server shares within its node, and what of it is mapped."""

from __future__ import annotations

import os

import pytest
import zmq

from paddle.errors import WireError
from paddle.pserver.transports.shm import ShmConnection
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.shared_memory import SharedArray, mapped
from paddle.pserver.wire.verbs import Attach
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)


def test_only_the_holder_of_the_key_finds_the_shared_memory() -> None:
    with PserverProcess("--port=0") as server, pytest.raises(ConnectionRefusedError):
        ShmConnection(server.endpoints[0], WireKeys.of("6b" * 32), Message(Attach()), 10)


def test_without_a_session_no_memory_is_shared() -> None:
    with PserverProcess("--port=0") as server, pytest.raises(WireError):
        ShmConnection(server.endpoints[0], WireKeys.of(KEY), Message(Attach()), 10)


def test_memory_that_its_owner_can_shrink_is_not_mapped() -> None:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 40)
    with pytest.raises(WireError, match="still resize"):
        mapped(descriptor, 10)
    os.close(descriptor)
    shared = SharedArray(10)
    with pytest.raises(WireError, match="expected 44 bytes, got 40"):
        mapped(shared.descriptor, 11)
    shared.array[3] = 1.0
    assert mapped(shared.descriptor, 10)[3] == 1.0
