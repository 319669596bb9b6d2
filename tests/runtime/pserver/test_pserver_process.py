# SPDX-License-Identifier: Apache-2.0
"""`paddle pserver` as users meet it: a process, ports, signals, strangers."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import PserverError, PserverLost
from paddle.pserver.client import Client
from tests.runtime.pserver.in_process_job import SGD, Model
from tests.runtime.pserver.pserver_process import KEY, ROOT, PserverProcess

NOTICED_S = 20.0  # alone on a machine: within 1 s, or 10 s if it is frozen
MODEL = Model({"fc.w": (40, 50), "emb": (9, 2)}, sparse=["emb"])


def connect(
    server: PserverProcess, trainer: int = 0, num: int = 1, key: str | None = KEY, timeout_s: float = 20.0
) -> Client:
    return Client.connect(
        server.endpoints,
        server.sparse_endpoints,
        trainer_id=trainer,
        num_trainers=num,
        job_key=key,
        wire="curve" if key else "plain",
        timeout_s=timeout_s,
    )


def train(client: Client, trainer: int = 0, steps: int = 5) -> dict[str, np.ndarray]:
    out = MODEL.empty()
    client.configure(MODEL.parameters, SGD, MODEL.values() if trainer == 0 else {})
    client.start_pass()
    for step in range(steps):
        client.push_pull(MODEL.gradients(trainer, step), 1, {"fc.w": out["fc.w"]})
    client.finish_pass()
    client.pull(out)
    return out


@pytest.mark.parametrize("key", [KEY, None])
def test_a_server_reports_ready_trains_and_ends_quietly(key: str | None) -> None:
    with PserverProcess("--port=0", "--ports_num=2", "--ports_num_for_sparse=1", key=key) as server:
        assert len(server.endpoints) == 2
        assert len(server.sparse_endpoints) == 1
        with connect(server, key=key) as client:
            out = train(client)
        expected = MODEL.values()["fc.w"] - 0.1 * sum(MODEL.gradients(0, s)["fc.w"] for s in range(5))
        np.testing.assert_allclose(out["fc.w"], expected, rtol=1e-4, atol=1e-5)
        code, output = server.end()
    assert code == 0
    assert "Traceback" not in output
    assert "number of parameterServer instances: 3" in output
    assert ("THE WIRE IS PLAIN" in output) == (key is None)
    assert KEY not in output


def test_ctrl_c_ends_a_server_without_a_traceback() -> None:
    with PserverProcess("--port=0") as server:
        code, output = server.end(signal.SIGINT)
    assert code == 0
    assert "Traceback" not in output


def test_lines_go_to_the_log_file_and_to_stdout(tmp_path: Path) -> None:
    with PserverProcess(
        "--port=0", "--comment=a b", cwd=tmp_path, GLOG_logtostderr="0", GLOG_log_dir="./log"
    ) as server:
        _, output = server.end()
    text = (tmp_path / "log" / "paddle_pserver2.INFO").read_text()
    assert text.startswith("Log file created at: ")
    assert "commandline: paddle pserver --port=0 --comment=a b " in text
    assert output.splitlines() == text.splitlines()[3:]


def test_several_trainer_processes_worth_of_clients_train_together() -> None:
    with PserverProcess("--port=0", "--ports_num=2", "--num_gradient_servers=3") as server:
        clients = [connect(server, trainer, 3) for trainer in range(3)]
        results: list[np.ndarray] = []
        threads = [
            threading.Thread(target=lambda c=client, t=t: results.append(train(c, t)["fc.w"]), daemon=True)
            for t, client in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        for client in clients:
            client.close()
        assert len(results) == 3
        assert all(np.array_equal(result, results[0]) for result in results)


@pytest.mark.parametrize("key", [KEY, None])
def test_a_killed_server_is_noticed_and_named(key: str | None) -> None:
    server = PserverProcess("--port=0", "--num_gradient_servers=2", key=key)
    with server, connect(server, num=2, key=key) as client:
        client.configure(MODEL.parameters, SGD, MODEL.values())
        killer = threading.Timer(0.3, server.process.kill)
        killer.start()
        begin = time.monotonic()
        with pytest.raises(PserverLost, match="is gone") as caught:
            client.start_pass()  # waits for a trainer that never comes
        assert time.monotonic() - begin < NOTICED_S
        assert caught.value.endpoint == server.endpoints[0]
        killer.join()


def test_a_server_that_was_restarted_is_not_taken_for_the_old_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    flags = (f"--port={port}",)
    with PserverProcess(*flags) as old:
        client = connect(old)
        client.configure(MODEL.parameters, SGD, MODEL.values())
        old.end()
    with PserverProcess(*flags), client, pytest.raises(PserverLost, match="was restarted"):
        client.start_pass()


@pytest.mark.slow
def test_a_frozen_server_is_noticed() -> None:
    with PserverProcess("--port=0", "--num_gradient_servers=2") as server, connect(server, num=2) as client:
        client.configure(MODEL.parameters, SGD, MODEL.values())
        server.process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        with pytest.raises(PserverLost):
            client.start_pass()
        assert time.monotonic() - begin < NOTICED_S
        server.process.send_signal(signal.SIGCONT)


DOOMED = """
import sys
from paddle.pserver.client import Client
from tests.runtime.pserver.in_process_job import SGD
from tests.runtime.pserver.test_pserver_process import MODEL
client = Client.connect([sys.argv[1]], [], trainer_id=1, num_trainers=2, job_key=sys.argv[2], wire="curve")
client.configure(MODEL.parameters, SGD, {})
client.start_pass()
print("started", flush=True)
sys.stdin.read()
"""


def test_a_killed_trainer_is_named_to_those_who_wait_for_it() -> None:
    with PserverProcess("--port=0", "--num_gradient_servers=2", "--barrier_timeout_s=0.5") as server:
        doomed = subprocess.Popen(
            [sys.executable, "-c", DOOMED, server.endpoints[0], KEY],
            env={"PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}", "PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with doomed, connect(server, num=2) as client:
            client.configure(MODEL.parameters, SGD, MODEL.values())
            client.start_pass()
            assert doomed.stdout is not None
            assert doomed.stdout.readline() == "started\n"
            doomed.kill()
            with pytest.raises(
                PserverError, match=r"gave up waiting for gradients; missing: trainer 1 \(connection lost\)"
            ):
                client.push_pull({}, 1, {})
        _, output = server.end()
    assert "connection of trainer 1 broke" in output


def test_a_server_that_is_not_there_is_named_after_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        endpoint = f"127.0.0.1:{holder.getsockname()[1]}"
    with pytest.raises(PserverLost, match=f"pserver {endpoint} did not answer .* does it run"):
        Client.connect(
            [endpoint], [], trainer_id=0, num_trainers=1, job_key=None, wire="plain", timeout_s=0.5
        )


def test_trainers_may_start_before_their_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    found: list[Client] = []

    def early() -> None:
        found.append(
            Client.connect([f"127.0.0.1:{port}"], [], trainer_id=0, num_trainers=1, job_key=KEY, wire="curve")
        )

    thread = threading.Thread(target=early, daemon=True)
    thread.start()
    with PserverProcess(f"--port={port}"):
        thread.join(20)
        assert found
        found[0].close()


@pytest.mark.parametrize(("server_key", "client_key"), [(KEY, "00" * 32), (KEY, None), (None, KEY)])
def test_who_does_not_have_the_jobs_key_is_refused(server_key: str | None, client_key: str | None) -> None:
    with PserverProcess("--port=0", key=server_key) as server:
        with pytest.raises(PserverLost, match="PADDLE_JOB_KEY or --wire may differ"):
            connect(server, key=client_key, timeout_s=2.0)
        with connect(server, key=server_key) as client:
            train(client)


@pytest.mark.parametrize("key", [KEY, None])
def test_strangers_on_the_port_do_not_disturb_a_job(key: str | None) -> None:
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
    from paddle.pserver.links import Links
    from paddle.pserver.message import Message, Verb

    with PserverProcess("--port=0", key=None) as server:
        links = Links(server.endpoints, None)
        links.send(0, Message(Verb.WAITING))
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
        (("--bind=192.0.2.7", "--port=0"), "give an address of this machine as --bind"),
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
        with pytest.raises(PserverError, match="--num_gradient_servers=2, trainer 0 says 1") as caught:
            connect(server)
        assert caught.value.endpoint == server.endpoints[0]
