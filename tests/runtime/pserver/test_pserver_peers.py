# SPDX-License-Identifier: Apache-2.0
"""A server's process among strangers, taken ports and wrong flags."""

from __future__ import annotations

import os
import re
import socket
import threading

import numpy as np
import pytest

from paddle.errors import PserverError
from tests.runtime.pserver.pserver_process import KEY, PserverProcess
from tests.runtime.pserver.pserver_training import connect, train


@pytest.mark.parametrize("key", [KEY, None])
def test_unauthenticated_peers_do_not_disturb_a_job(key: str | None) -> None:
    garbage = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        os.urandom(4096),
        b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(60),
        b"",
    ]
    with PserverProcess("--port=0", key=key) as server, connect(server, key=key) as client:
        host, port = server.endpoints[0].split(":")
        for bytes_ in garbage * 3:
            with socket.create_connection((host, int(port)), 5) as stranger:
                stranger.sendall(bytes_)
        out = train(client)
        assert np.isfinite(out["fc.w"]).all()
        assert server.process.poll() is None


def test_a_peer_that_speaks_zeromq_but_not_our_protocol_is_answered_and_logged() -> None:
    from paddle.pserver.client.links import Links
    from paddle.pserver.wire.message import Message
    from paddle.pserver.wire.verbs import Verb, Waits

    with PserverProcess("--port=0", key=None) as server:
        links = Links(server.endpoints, None)
        links.send(0, Message(Waits()))
        incoming = links.receive(5.0)
        links.close()
        assert incoming is not None
        assert incoming.message is not None
        assert incoming.message.verb in (Verb.ERROR, Verb.STATE_LOST)
        assert server.end()[0] == 0


def test_a_busy_port_is_refused_with_its_owner() -> None:
    with PserverProcess("--port=0") as first:
        port = first.endpoints[0].rpartition(":")[2]
        second = PserverProcess(f"--port={port}")
        with pytest.raises(AssertionError) as caught, second:
            pass
        text = str(caught.value)
        assert re.search(rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use", text)
        assert f"held by pid {first.process.pid}" in text
        assert "--port_tries" in text
        assert second.process.returncode == 1


def test_a_whole_range_moves_on_when_one_of_its_ports_is_busy() -> None:
    with PserverProcess("--port=0") as first:
        port = int(first.endpoints[0].rpartition(":")[2])
        base = port - 1
        with PserverProcess(f"--port={base}", "--ports_num=2", "--port_tries=50") as second:
            ports = [int(endpoint.rpartition(":")[2]) for endpoint in second.endpoints]
            assert ports[0] > port
            assert ports[1] == ports[0] + 1
            with connect(second) as client:
                train(client)


def test_servers_that_start_at_once_share_a_range_without_collision() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        base = holder.getsockname()[1]
    servers = [PserverProcess(f"--port={base}", "--ports_num=2", "--port_tries=60") for _ in range(6)]
    threads = [threading.Thread(target=server.start, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    endpoints = [endpoint for server in servers for endpoint in server.endpoints]
    for server in servers:
        server.__exit__(None, None, None)
    assert len(set(endpoints)) == 12


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--prot=1",), "unknown command line flag 'prot'; did you mean 'port'?"),
        (("--port=99999",), "flag --port: expected 0 to 65535, got 99999"),
        (("--nics=nosuchnic0",), ""),
        (("--wire=tls",), "flag --wire: expected curve or plain, got 'tls'"),
        (("extra",), "Unknown commandline argument: extra"),
        (("--bind=192.0.2.7", "--port=0"), "an address of this machine"),
    ],
)
def test_wrong_flags_end_the_command_with_the_reason(flags: tuple[str, ...], why: str) -> None:
    server = PserverProcess(*flags)
    if not why:  # POD_IP, which the launcher sets, beats --nics
        server.env.pop("POD_IP")
        why = "device 'nosuchnic0' has no IPv4 address"
    with pytest.raises(AssertionError) as caught, server:
        pass
    assert why in str(caught.value)
    assert server.process.returncode == 1


def test_a_refused_request_tells_the_client_which_server_said_so() -> None:
    with PserverProcess("--port=0", "--num_gradient_servers=2") as server:
        with pytest.raises(PserverError, match="--num_gradient_servers=2, but trainer 0 has 1") as caught:
            connect(server)
        assert caught.value.endpoint == server.endpoints[0]
