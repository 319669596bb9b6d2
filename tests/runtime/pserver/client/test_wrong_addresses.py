# SPDX-License-Identifier: Apache-2.0
"""Clients that were given a wrong address: what they are told, while they wait and before they do in vain.

An error that is not PserverLost came before the deadline: at that, a client raises PserverLost.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paddle.errors import ConfigError, PaddleError, PserverError, PserverLost, WireError
from paddle.pserver import Reader
from paddle.pserver.client.program_client import ProgramClient
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.wire.keys import WireKeys
from tests.ports import free_endpoints
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

SHORT_S, LONG_S = 1.6, 60.0
REFUSED = "connection refused: nothing is listening on that port"


def trainer(*endpoints: str, timeout_s: float = SHORT_S, key: str | None = None, **more: object) -> object:
    return TrainerSession.connect(
        endpoints,
        [],
        trainer_id=0,
        num_trainers=1,
        job_key=key,
        wire="curve" if key else "plain",
        timeout_s=timeout_s,
        **more,  # type: ignore[arg-type]
    )


def reader(*endpoints: str, timeout_s: float = SHORT_S, key: str | None = None) -> object:
    return Reader.connect(endpoints, job_key=key, wire="curve" if key else "plain", timeout_s=timeout_s)


def program(*endpoints: str, timeout_s: float = SHORT_S, key: str | None = None) -> object:
    keys = None if key is None else WireKeys.of(key)
    return ProgramClient.connect(endpoints, keys, trainer_id=0, num_trainers=1, timeout_s=timeout_s)


CLIENTS = {"trainer": trainer, "reader": reader, "program": program}


def free_endpoint() -> str:
    return free_endpoints(1)[0]


@contextlib.contextmanager
def somebody(said: bytes) -> Iterator[str]:
    """A process that is no pserver and says something to everybody."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        guests = []
        with contextlib.suppress(OSError):
            while True:
                guests.append(listener.accept()[0])
                guests[-1].sendall(said)
        for guest in guests:
            guest.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def failure(act: Callable[[], object]) -> PaddleError:
    with pytest.raises(PaddleError) as caught:
        act()
    return caught.value


def failures(acts: Mapping[str, Callable[[], object]]) -> dict[str, PaddleError]:
    """Run all simultaneously, since each waits for its deadline, and return their errors."""
    with ThreadPoolExecutor(len(acts)) as threads:
        return dict(zip(acts, threads.map(failure, acts.values()), strict=True))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for record in found if (text := record.getMessage()).startswith("waiting for pserver")]


def test_a_missing_server_is_reported_while_each_kind_of_client_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = {who: (free_endpoint(), free_endpoint()) for who in CLIENTS}
    errors = failures({who: partial(connect, *servers[who]) for who, connect in CLIENTS.items()})
    for who, (one, other) in servers.items():
        assert isinstance(errors[who], PserverLost)
        reason = rf"pserver {one} did not answer for \d+ s; {re.escape(REFUSED)}"
        assert re.search(reason, str(errors[who]))
        assert f"nor did {other} answer" in str(errors[who])
        warnings = [text for text in told(caplog) if f" {one}, " in text]
        assert len(warnings) > 1, "reported once, and not again"
        assert warnings[0].startswith(f"waiting for pserver {one}, {other}: {REFUSED}")
        assert re.search(r"\(waited \d+ s, at most \d+ s more\)$", warnings[0])


def test_an_unknown_name_is_reported_while_each_kind_of_client_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = failures(
        {who: partial(connect, f"no-such-{who}.invalid:7164") for who, connect in CLIENTS.items()}
    )
    for who, error in errors.items():
        reason = f"the name 'no-such-{who}.invalid' cannot be resolved"
        assert isinstance(error, PserverLost)
        assert reason in str(error)
        warnings = [text for text in told(caplog) if f"no-such-{who}." in text]
        assert reason in warnings[0]


@pytest.mark.parametrize("key", [KEY, None])
def test_another_program_that_speaks_first_is_an_immediate_error(key: str | None) -> None:
    with somebody(b"SSH-2.0-OpenSSH_9.6\r\n") as endpoint:
        acts = {
            who: partial(connect, endpoint, timeout_s=LONG_S, key=key) for who, connect in CLIENTS.items()
        }
        errors = failures(acts).values()
    for error in errors:
        assert isinstance(error, WireError)
        assert error.endpoint == endpoint
        reason = "the process that listens there is not a pserver; it sent b'SSH-2.0"
        assert f"pserver {endpoint}: {reason}" in str(error)


class _Page(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_something_else_that_waits_to_be_spoken_to_is_an_error_at_once() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        error = failure(lambda: trainer(f"127.0.0.1:{web.server_port}", timeout_s=LONG_S))
        web.shutdown()
        thread.join()
    assert isinstance(error, WireError)
    assert "the process that listens there is not a pserver" in str(error)


def test_a_port_that_says_nothing_is_told_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with somebody(b"") as endpoint:
        error = failure(lambda: trainer(endpoint))
    assert isinstance(error, PserverLost)
    assert "it accepts connections but sends nothing" in str(error)
    assert "it accepts connections but sends nothing" in told(caplog)[-1]


def test_a_proxy_without_its_server_is_told_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        thread = threading.Thread(target=refuse)
        thread.start()
        error = failure(lambda: trainer(f"127.0.0.1:{listener.getsockname()[1]}", key=KEY))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert isinstance(error, PserverLost)
    assert "it accepts connections and closes them immediately" in str(error)
    assert "it accepts connections and closes them immediately" in told(caplog)[-1]


def test_zeromq_that_never_answers_is_told_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.ROUTER) as mute:
        mute.linger = 0
        port = mute.bind_to_random_port("tcp://127.0.0.1")
        error = failure(lambda: trainer(f"127.0.0.1:{port}"))
    assert isinstance(error, PserverLost)
    assert "connected, but it does not answer" in str(error)
    assert "connected, but it does not answer" in told(caplog)[-1]


KEYS = {
    "another key": (KEY, "00" * 32, "its PADDLE_JOB_KEY or --wire may differ"),
    "no key": (KEY, None, "uses curve; give both sides the same PADDLE_JOB_KEY"),
    "a key where none is": (None, KEY, "uses plain; give both sides"),
}


@pytest.mark.parametrize("what", KEYS)
def test_another_wire_or_key_is_an_error_before_the_deadline(what: str) -> None:
    theirs, ours, why = KEYS[what]
    with PserverProcess("--port=0", key=theirs) as server:
        acts = {
            who: partial(connect, *server.endpoints, timeout_s=LONG_S, key=ours)
            for who, connect in CLIENTS.items()
        }
        for error in failures(acts).values():
            assert isinstance(error, WireError)
            assert error.endpoint == server.endpoints[0]
            assert why in str(error)


@pytest.mark.parametrize("ports", [(3, 0), (1, 0), (1, 1), (2, 1)])
def test_servers_with_other_numbers_of_ports_are_an_error_at_once(ports: tuple[int, int]) -> None:
    with PserverProcess("--port=0", "--ports_num=2", key=None) as server:
        endpoints = [*server.endpoints, free_endpoint()][: sum(ports)]
        error = failure(lambda: trainer(*endpoints, timeout_s=LONG_S, ports=ports))
        # the server may not have seen yet that the one before is gone
        trainer(*server.endpoints, timeout_s=LONG_S, ports=(2, 0), takes_over=True).close()  # type: ignore[attr-defined]
    assert isinstance(error, ConfigError)
    assert "was started with ports_num=2 and ports_num_for_sparse=0, but this process has " in str(error)
    assert f"ports_num={ports[0]} and ports_num_for_sparse={ports[1]}" in str(error)


def test_a_port_that_is_not_there_is_told_with_what_the_server_beside_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with PserverProcess("--port=0", "--ports_num=2", "--ports_num_for_sparse=1", key=None) as server:
        absent = free_endpoint()
        error = failure(lambda: trainer(*server.endpoints, absent))
    ports = "|".join(map(re.escape, [*server.endpoints, *server.sparse_endpoints]))
    beside = rf"The pserver ({ports}) on that host has ports_num=2 and ports_num_for_sparse=1"
    assert isinstance(error, PserverLost)
    assert error.endpoint == absent
    assert re.search(beside, str(error))
    assert told(caplog)[-1].startswith(f"waiting for pserver {absent}: {REFUSED}")
    assert re.search(beside, told(caplog)[-1])


def test_another_number_of_trainers_is_an_error_at_once() -> None:
    with PserverProcess("--port=0", "--num_gradient_servers=2", key=None) as server:
        error = failure(lambda: trainer(*server.endpoints, timeout_s=LONG_S))
    assert isinstance(error, PserverError)
    assert not isinstance(error, PserverLost)
    assert "--num_gradient_servers=2, but trainer 0 has 1" in str(error)


def test_a_server_that_is_started_later_is_waited_for_although_its_absence_was_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = free_endpoint()
    was_told = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("waiting for pserver"):
                was_told.set()

    listener = Listener()
    logging.getLogger("paddle").addHandler(listener)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(trainer(endpoint, timeout_s=LONG_S)))
    thread.start()
    assert was_told.wait(LONG_S)
    logging.getLogger("paddle").removeHandler(listener)
    with PserverProcess(f"--port={endpoint.rpartition(':')[2]}", key=None):
        thread.join(LONG_S)
        found[0].close()  # type: ignore[attr-defined]
    assert REFUSED in told(caplog)[0]
    assert "all pservers have answered after" in caplog.text


@pytest.mark.parametrize("who", CLIENTS)
@pytest.mark.parametrize("endpoint", ["10.0.0.1", "10.0.0.1:x", "tcp://10.0.0.1:7164", "fe80::1:7164"])
def test_what_is_no_endpoint_is_an_error_before_anything_is_tried(who: str, endpoint: str) -> None:
    with pytest.raises(ConfigError, match="pserver endpoint '"):
        CLIENTS[who](endpoint, timeout_s=LONG_S)


@pytest.mark.parametrize("trainer_id", [-1, 2])
def test_a_program_client_with_an_impossible_trainer_id_waits_for_no_server(trainer_id: int) -> None:
    with pytest.raises(ConfigError, match=f"trainer_id: expected 0 to 1, got {trainer_id}"):
        ProgramClient.connect(["127.0.0.1:1"], None, trainer_id=trainer_id, num_trainers=2, timeout_s=LONG_S)
