# SPDX-License-Identifier: Apache-2.0
"""Who finds the memory that a server shares within its node, and what of it is mapped."""

from __future__ import annotations

import os

import numpy as np
import pytest
import zmq

from paddle.errors import WireError
from paddle.pserver import Client, OptimizerSpec
from paddle.pserver.client.exchange import Exchange
from paddle.pserver.client.links import Links
from paddle.pserver.transports.packet import pack, pack_placed, place_of, unpack
from paddle.pserver.transports.shm import ShmConnection
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.shared_memory import SharedArray, mapped
from paddle.pserver.wire.verbs import Hello, Ok
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

# pyzmq starts a thread of its own when it first sends something large without a copy, and keeps it.
zmq.Frame(bytes(1 << 17), copy=False)


def greeted(endpoint: str) -> Message:
    """What a server of one trainer answers to HELLO, from which a connection takes its stamp."""
    network = Links([endpoint], WireKeys.of(KEY))
    try:
        return Exchange(network, 0, 30.0).run({0: Message(Hello(1))})[0]
    finally:
        network.close()


def test_only_a_process_with_the_key_finds_the_shared_memory() -> None:
    with PserverProcess("--port=0") as server:
        hello, port = greeted(server.endpoints[0]), int(server.endpoints[0].rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            ShmConnection(port, WireKeys.of("6b" * 32), hello, 10)
        with pytest.raises(WireError):
            ShmConnection(port, WireKeys.of(KEY), hello._replace(session=hello.session ^ 1), 10)


def test_a_server_of_this_node_is_known_by_another_address_too() -> None:
    with PserverProcess("--port=0", POD_IP="") as server:
        port = server.endpoints[0].rpartition(":")[2]
        with Client([f"127.0.0.9:{port}"], trainer_id=0, num_trainers=1, job_key=KEY) as client:
            client.create({"w": np.ones(4, np.float32)}, OptimizerSpec("sgd", learning_rate=1.0))
            client.push_pull({"w": np.ones(4, np.float32)}, {})
            value = client.value_array("w")
            assert value is not None
            assert not value.any()


@pytest.mark.parametrize("place", [(2, 0, 8), (1, 36, 8), (0, 1 << 63, 8), (1, 0, 1 << 63)], ids=str)
def test_a_packet_that_names_memory_which_is_not_shared_is_refused(place: tuple[int, int, int]) -> None:
    ours = [np.zeros(0, np.float32), np.arange(10, dtype=np.float32)]
    rows = Message(Ok(), sections=(Section("t", ours[1][4:6]),))
    assert unpack(pack(rows, ours), ours).section("t").array.tolist() == [4.0, 5.0]
    packet = pack_placed(rows, [place_of(*place)])
    with pytest.raises(
        WireError, match=rf"bytes {place[1]} to {place[1] + place[2]} of shared memory {place[0]}"
    ):
        unpack(packet, ours)


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
