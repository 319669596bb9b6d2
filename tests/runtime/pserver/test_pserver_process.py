# SPDX-License-Identifier: Apache-2.0
"""`paddle pserver` as users meet it: a process, ports, signals, strangers."""

from __future__ import annotations

import signal
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import PserverLost
from paddle.pserver.client.session import TrainerSession
from paddle_node.linux.ports import reserve
from tests.cluster.deadline import wait_for
from tests.ports import free_range
from tests.runtime.pserver.in_process_job import SGD
from tests.runtime.pserver.pserver_process import KEY, PserverProcess
from tests.runtime.pserver.pserver_training import MODEL, connect, train

NOTICED_S = 60.0  # alone on a machine: within 1 s, or 10 s if it is frozen


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
    assert ("PADDLE_JOB_KEY" in output) == (key is None)
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
        with pytest.raises(PserverLost, match="has exited") as caught:
            client.start_pass()  # waits for a trainer that never comes
        assert time.monotonic() - begin < NOTICED_S
        assert caught.value.endpoint == server.endpoints[0]
        killer.join()


def test_a_server_that_was_restarted_is_not_taken_for_the_old_one() -> None:
    flags = (f"--port={free_range(1)}",)
    with PserverProcess(*flags) as old:
        client = connect(old)
        client.configure(MODEL.parameters, SGD, MODEL.values())
        old.end()
    with PserverProcess(*flags), client, pytest.raises(PserverLost, match="was restarted"):
        client.start_pass()


def test_a_server_leaves_out_a_port_that_is_reserved_for_the_server_of_another_job() -> None:
    port = free_range(4)
    reservation = reserve("127.0.0.1", port + 1)
    assert reservation is not None
    with (
        reservation,
        PserverProcess(
            f"--port={port}", "--ports_num=1", "--ports_num_for_sparse=1", "--port_tries=5"
        ) as server,
    ):
        found = [int(each.rpartition(":")[2]) for each in (*server.endpoints, *server.sparse_endpoints)]
        assert found == [port + 2, port + 3]


def test_a_server_that_is_not_there_is_named_after_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        endpoint = f"127.0.0.1:{holder.getsockname()[1]}"
    with pytest.raises(PserverLost, match=f"pserver {endpoint} did not answer .* the server is running"):
        TrainerSession.connect(
            [endpoint], [], trainer_id=0, num_trainers=1, job_key=None, wire="plain", timeout_s=0.5
        )


def test_trainers_may_start_before_their_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    found: list[TrainerSession] = []

    def early() -> None:
        found.append(
            TrainerSession.connect(
                [f"127.0.0.1:{port}"], [], trainer_id=0, num_trainers=1, job_key=KEY, wire="curve"
            )
        )

    thread = threading.Thread(target=early, daemon=True)
    thread.start()
    with PserverProcess(f"--port={port}"):
        thread.join(20)
        assert found
        found[0].close()


def test_a_server_that_is_started_again_waits_for_its_port_that_somebody_got_for_moments(
    tmp_path: Path,
) -> None:
    with PserverProcess(
        "--port=0", f"--state_dir={tmp_path}", GLOG_logtostderr="0", GLOG_log_dir=str(tmp_path)
    ) as server:
        before = server.endpoints
        server.end(signal.SIGKILL)
        host, port = before[0].split(":")
        # what the kernel gives to a connection: it listens to nobody, and nobody can bind it meanwhile
        with socket.socket() as holder:
            holder.bind((host, int(port)))
            started = threading.Thread(target=server.start)
            started.start()
            log = tmp_path / "paddle_pserver2.INFO"
            wait_for(
                "another try", lambda: f"{port}: Address already in use; retrying for" in log.read_text(), 60
            )
        started.join(60)
        assert server.endpoints == before
