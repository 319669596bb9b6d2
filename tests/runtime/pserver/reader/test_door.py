# SPDX-License-Identifier: Apache-2.0
"""The HTTP door of followed tables: lookups, refusals, and peers that send anything."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.pserver.door import MAX_IDS, Door
from tests.runtime.pserver.in_process_job import InProcessJob
from tests.runtime.pserver.reader.test_followed_tables import IDS, WAIT_S, begun, follow, push

TOKEN = "0123456789abcdef"


class Served:
    """A door in a thread, and the job behind it."""

    def __init__(self, token: str = "") -> None:
        self.job = InProcessJob(1, num_dense=2)
        self.client = begun(self.job)
        push(self.client, IDS, 1.0)
        self.copy = follow([self.job], within_s=60.0)
        self.copy.wait(WAIT_S)
        self.door = Door({"t": self.copy}, token=token)
        self._thread = threading.Thread(target=self.door.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, bytes]:
        peer = http.client.HTTPConnection("127.0.0.1", self.door.server_port, timeout=20)
        with closing(peer):
            peer.request(
                method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = peer.getresponse()
            return answer.status, answer.headers, answer.read()

    def close(self) -> None:
        self.door.shutdown()
        self.door.server_close()
        self._thread.join(10)
        self.copy.close()
        self.client.close()


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.close()


def test_rows_come_as_bytes_and_as_json(served: Served) -> None:
    expected = served.client.pull_rows("t", IDS)
    status, headers, body = served.ask("POST", "/tables/t/rows", IDS.astype("<i8").tobytes())
    assert (status, headers["X-Shape"], headers["X-Batch"]) == (200, f"{len(IDS)},4", "1")
    assert np.array_equal(np.frombuffer(body, "<f4").reshape(-1, 4), expected)
    ids = json.dumps({"ids": IDS[:3].tolist()}).encode()
    status, _, body = served.ask("POST", "/tables/t/rows", ids, Content_Type="application/json")
    assert status == 200
    assert np.array_equal(np.array(json.loads(body)["rows"], np.float32), expected[:3])
    status, headers, body = served.ask("POST", "/tables/t/rows")
    assert (status, headers["X-Shape"], body) == (200, "0,4", b"")
    (told,) = json.loads(served.ask("GET", "/tables")[2])
    assert (told["name"], told["rows"], told["width"], told["fault"]) == ("t", len(IDS), 4, "")
    assert served.ask("GET", "/health")[0] == 200


def test_a_copy_that_is_too_old_is_not_answered_from(served: Served) -> None:
    served.copy.within_s = 1e-9
    assert served.ask("POST", "/tables/t/rows", bytes(8))[0] == 503
    status, _, body = served.ask("GET", "/health")
    assert (status, json.loads(body)) == (503, {"stale": ["t"]})


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/tables/u/rows", bytes(8), {}, 404),
        ("POST", "/rows", bytes(8), {}, 404),
        ("GET", "/../etc/passwd", b"", {}, 404),
        ("POST", "/tables/t/rows", bytes(7), {}, 400),
        ("POST", "/tables/t/rows", bytes(8 * (MAX_IDS + 1)), {}, 413),
        ("POST", "/tables/t/rows", bytes(3_000_000), {}, 413),
        ("POST", "/tables/t/rows", b'{"ids": [1.5]}', {"Content_Type": "application/json"}, 400),
        (
            "POST",
            "/tables/t/rows",
            b'{"ids": [9999999999999999999]}',
            {"Content_Type": "application/json"},
            400,
        ),
        ("POST", "/tables/t/rows", b"[" * 5000, {"Content_Type": "application/json"}, 400),
        ("POST", "/tables/t/rows", b"[]", {"Content_Type": "application/json"}, 400),
        ("POST", "/tables/t/rows", bytes(8), {"Host": "evil.example:80"}, 401),
        ("PUT", "/tables/t/rows", bytes(8), {}, 501),
    ],
)
def test_what_is_wrong_is_refused_and_the_door_stays_open(
    served: Served, method: str, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert served.ask(method, path, body, **headers)[0] == status
    assert served.ask("POST", "/tables/t/rows", bytes(8))[0] == 200


def test_bytes_that_are_no_request_harm_nobody(served: Served) -> None:
    rng = np.random.default_rng(1)
    for data in (
        b"\r\n" * 50,
        b"GET " + b"x" * 70_000,
        b"POST /tables/t/rows HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    ):
        assert b" 200 " not in exchanged(served, data)
    for _ in range(10):
        exchanged(served, rng.integers(0, 256, 300, np.uint8).tobytes() + b"\n\n")
    assert served.ask("POST", "/tables/t/rows", bytes(8))[0] == 200


def exchanged(served: Served, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", served.door.server_port), 20) as peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        found = b""
        try:
            while block := peer.recv(1 << 16):
                found += block
        except ConnectionResetError:
            pass
        return found


def test_with_a_token_only_its_holder_is_answered() -> None:
    served = Served(TOKEN)
    try:
        asked = "POST", "/tables/t/rows", bytes(8)
        assert served.ask(*asked)[0] == 401
        assert served.ask(*asked, Authorization=f"Bearer {TOKEN}x")[0] == 401
        assert served.ask(*asked, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert served.ask("GET", "/tables")[0] == 401
    finally:
        served.close()


def test_an_address_that_others_reach_needs_a_token() -> None:
    with pytest.raises(ConfigError, match=r"0.0.0.0 can be reached from other machines: give a token"):
        Door({}, "0.0.0.0")
    with pytest.raises(ConfigError, match=r"at least 16 printable"):
        Door({}, token="short")
