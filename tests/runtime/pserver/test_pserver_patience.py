# SPDX-License-Identifier: Apache-2.0
"""What clients of a real server find out only by waiting: silence, strangers' keys, trainers that do not come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import PserverError, PserverLost, WaitTimeout, WireError
from paddle.pserver import Client, OptimizerSpec
from tests.beside import Outcomes, Scenarios
from tests.cluster.proxy import Proxy
from tests.runtime.pserver.in_process_job import SGD
from tests.runtime.pserver.neutral_job import client, server
from tests.runtime.pserver.own_servers import AT_ONCE, BESIDE_S, own_servers
from tests.runtime.pserver.pserver_process import KEY, ROOT, PserverProcess
from tests.runtime.pserver.pserver_training import MODEL, connect, train
from tests.runtime.pserver.transports.test_spoilt_network import target_of, through
from tests.runtime.pserver.transports.test_spoilt_network import train as train_and_look

NOTICED_S = 60.0  # alone on a machine: within 10 s
KEYS = {"another key": (KEY, "00" * 32), "no key": (KEY, None), "a key where none is": (None, KEY)}


pytestmark = pytest.mark.timeout(BESIDE_S)

scenarios = Scenarios(own_servers, AT_ONCE)
outcomes = scenarios.fixture()


@scenarios.add
def a_frozen_server_is_noticed(folder: Path) -> None:
    with PserverProcess("--port=0", "--num_gradient_servers=2") as process, connect(process, num=2) as one:
        one.configure(MODEL.parameters, SGD, MODEL.values())
        process.process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        with pytest.raises(PserverLost):
            one.start_pass()
        assert time.monotonic() - begin < NOTICED_S
        process.process.send_signal(signal.SIGCONT)


@scenarios.add
def a_network_that_stays_silent_ends_the_trainer_and_names_the_server(folder: Path) -> None:
    with (
        PserverProcess("--port=0") as process,
        Proxy(target_of(process)) as proxy,
        through(proxy, proxy.address, KEY) as one,
    ):
        with pytest.raises(PserverLost, match="is lost") as caught:
            train_and_look(one, before=lambda step: proxy.pause() if step == 3 else None)
        assert caught.value.endpoint == "{}:{}".format(*proxy.address)
        proxy.resume()


DOOMED = """
import sys
from paddle.pserver.client.session import TrainerSession
from tests.runtime.pserver.in_process_job import SGD
from tests.runtime.pserver.pserver_training import MODEL
client = TrainerSession.connect([sys.argv[1]], [], trainer_id=1, num_trainers=2, job_key=sys.argv[2], wire="curve")
client.configure(MODEL.parameters, SGD, {})
client.start_pass()
print("started", flush=True)
sys.stdin.read()
"""


@scenarios.add
def a_killed_trainer_is_named_to_those_who_wait_for_it(folder: Path) -> None:
    with PserverProcess("--port=0", "--num_gradient_servers=2", "--barrier_timeout_s=0.5") as process:
        doomed = subprocess.Popen(
            [sys.executable, "-c", DOOMED, process.endpoints[0], KEY],
            env={"PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}", "PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with doomed, connect(process, num=2) as one:
            one.configure(MODEL.parameters, SGD, MODEL.values())
            one.start_pass()
            assert doomed.stdout is not None
            assert doomed.stdout.readline() == "started\n"
            doomed.kill()
            with pytest.raises(
                PserverError, match=r"gave up waiting for gradients; missing: trainer 1 \(connection lost\)"
            ):
                one.push_pull({}, 1, {})
        _, output = process.end()
    assert "connection to trainer 1 broke" in output


@scenarios.each(*KEYS)
def who_does_not_have_the_jobs_key_is_refused(what: str, folder: Path) -> None:
    server_key, client_key = KEYS[what]
    with PserverProcess("--port=0", key=server_key) as process:
        with pytest.raises(WireError, match="PADDLE_JOB_KEY"):
            connect(process, key=client_key)
        with connect(process, key=server_key) as one:
            train(one)


@scenarios.add
def a_client_for_any_framework_without_the_key_of_the_job_is_refused(folder: Path) -> None:
    with server(1) as process, pytest.raises(PserverError):
        Client(process.endpoints, job_key="00" * 32, timeout_s=2.0)


@scenarios.add
def a_wait_for_a_trainer_that_does_not_come_ends_and_names_it(folder: Path) -> None:
    rule = OptimizerSpec("sgd", learning_rate=0.1)
    with server(2) as process, client(process, 0, 2, wait_s=2.0) as one:
        with pytest.raises(
            WaitTimeout, match=r"gave up after 2 s: pserver .* missing: trainer 1 \(never seen\)"
        ):
            one.create({"w": np.zeros(3, np.float32)}, rule)
        with pytest.raises(PserverError, match="cannot continue after an error"):
            one.push({"w": np.zeros(3, np.float32)})


@pytest.mark.parametrize("scenario", scenarios)
def test_beside_each_other(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
