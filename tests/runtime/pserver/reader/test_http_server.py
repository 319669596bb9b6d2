# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of followed tables: lookups, refusals, and peers that send anything."""

from __future__ import annotations

import contextlib
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
from paddle.pserver.http_server import MAX_IDS, Limits, TableHTTPServer
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.in_process_job import InProcessJob
from tests.runtime.pserver.reader.test_followed_tables import IDS, WAIT_S, begun, follow, push

TOKEN = "0123456789abcdef"


class Served:
    """A server in a thread, and the job behind it."""

    def __init__(self, token: str = "", limits: Limits | None = None) -> None:
        self.job = InProcessJob(1, num_dense=2)
        self.client = begun(self.job)
        push(self.client, IDS, 1.0)
        self.copy = follow([self.job], within_s=60.0)
        self.copy.wait(WAIT_S)
        self.server = TableHTTPServer({"t": self.copy}, token=token, limits=limits)
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, bytes]:
        peer = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=20)
        with closing(peer):
            peer.request(
                method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = peer.getresponse()
            return answer.status, answer.headers, answer.read()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
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
        ("POST", "/tables/t/rows", b"{}", {"Content_Type": "application/json"}, 400),
        ("POST", "/tables/t/rows", b'{"ids":' + b"[" * 99999, {"Content_Type": "application/json"}, 400),
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
def test_what_is_wrong_is_refused_and_the_server_goes_on(
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
    with socket.create_connection(("127.0.0.1", served.server.server_port), 20) as peer:
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
    with pytest.raises(ConfigError, match=r"0.0.0.0 can be reached from other machines; give a token"):
        TableHTTPServer({}, "0.0.0.0")
    with pytest.raises(ConfigError, match=r"at least 16 printable"):
        TableHTTPServer({}, token="short")


def test_a_client_that_reads_a_byte_at_a_time_is_disconnected_and_its_memory_is_free() -> None:
    nbytes = MAX_IDS * (8 + 16)
    served = Served(limits=Limits(nbytes=nbytes, request_s=0.5))
    served.server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
    ids = np.zeros(MAX_IDS, "<i8").tobytes()
    try:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.settimeout(20)
            slow.connect(("127.0.0.1", served.server.server_port))
            head = f"POST /tables/t/rows HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(ids)}\r\n\r\n"
            slow.sendall(head.encode() + ids)
            assert slow.recv(1) == b"H"  # the response is on its way
            status, headers, _ = served.ask("POST", "/tables/t/rows", ids)
            assert (status, headers["Retry-After"]) == (503, "1")
            read = 1
            while served.ask("POST", "/tables/t/rows", ids[: 1 << 18])[0] != 200:
                read += len(slow.recv(1))
            with contextlib.suppress(ConnectionResetError):
                while block := slow.recv(1 << 16):
                    read += len(block)
            assert read < 16 * MAX_IDS  # the response was not sent to its end
    finally:
        served.close()


def test_a_new_client_takes_the_place_of_the_connection_that_is_idle_for_longest() -> None:
    served = Served(limits=Limits(connections=2))
    try:
        peers = [
            http.client.HTTPConnection("127.0.0.1", served.server.server_port, timeout=20) for _ in "abc"
        ]
        for count, peer in enumerate(peers, 1):
            peer.request("GET", "/health")
            assert peer.getresponse().read() == b'{"stale": []}'
            wait_for("idle connections", lambda: len(served.server._idle) == min(count, 2), WAIT_S)  # noqa: B023
        assert peers[0].sock.recv(1) == b""
        peers[1].request("GET", "/health")
        assert peers[1].getresponse().status == 200
        for peer in peers:
            peer.close()
    finally:
        served.close()


@pytest.mark.parametrize("data", [b"", b"GET /health HTTP/1.1\r\nHost: loc"])
def test_a_connection_without_a_whole_request_is_closed_in_time(data: bytes) -> None:
    served = Served(limits=Limits(request_s=0.2))
    try:
        with socket.create_connection(("127.0.0.1", served.server.server_port), 20) as peer:
            peer.sendall(data)
            assert peer.recv(1) == b""
    finally:
        served.close()


@pytest.mark.parametrize(("nbytes", "is_read"), [(300, True), (700, True), (800, False)])
def test_a_head_of_more_than_64_kib_is_not_read(served: Served, nbytes: int, is_read: bool) -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"x" * nbytes) for number in range(90))
    found = exchanged(served, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + fields + b"\r\n")
    assert (b" 200 " in found) == is_read


def test_answers_that_take_too_much_memory_are_refused() -> None:
    served = Served(limits=Limits(nbytes=10_000))
    try:
        as_json = {"Content_Type": "application/json"}
        ids = json.dumps({"ids": list(range(40))}).encode()
        assert served.ask("POST", "/tables/t/rows", bytes(8 * 400))[0] == 200
        wait_for("the memory of the first request", lambda: served.server.reserve(10_000), WAIT_S)
        served.server.release(10_000)
        assert served.ask("POST", "/tables/t/rows", ids, **as_json)[0] == 503
        assert served.ask("POST", "/tables/t/rows", b'{"ids": [1]}', **as_json)[0] == 200
    finally:
        served.close()


def head(request_line: str, *lines: str) -> bytes:
    return "\r\n".join((request_line, "Host: localhost", *lines, "", "")).encode()


LOOKUP = "POST /tables/t/rows HTTP/1.1"


def test_a_client_that_waits_for_leave_to_send_its_ids_gets_it(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.server_port), timeout=5) as peer:
        peer.sendall(head(LOOKUP, "Content-Length: 8", "Expect: 100-continue"))
        assert peer.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(bytes(8))
        assert peer.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_waits_for_leave_is_refused_before_it_sends_too_much(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.server_port), timeout=5) as peer:
        peer.sendall(head(LOOKUP, "Content-Length: 999999999", "Expect: 100-continue"))
        assert peer.recv(1000).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "length",
    [
        ("Transfer-Encoding: chunked",),
        ("Content-Length: 8", "Transfer-Encoding: chunked"),
        ("Content-Length: 8", "Content-Length: 0"),
        ("Content-Length: +8",),
        ("Content-Length: 8, 8",),
        ("Content-Length : 8",),
        ("Transfer-Encoding\v: chunked",),
        ("no header", "Content-Length: 8"),
        ("X: folded", " Content-Length: 8"),
    ],
)
@pytest.mark.parametrize("request_line", [LOOKUP, "GET /health HTTP/1.1"])
def test_a_body_whose_length_can_be_read_in_two_ways_is_refused_and_never_taken_for_a_request(
    served: Served, request_line: str, length: tuple[str, ...]
) -> None:
    with socket.create_connection(("127.0.0.1", served.server.server_port), timeout=5) as peer:
        peer.sendall(head(request_line, *length) + head("GET /tables HTTP/1.1"))
        got = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    assert got.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))
    assert got.count(b"HTTP/1.1 ") == 1


def test_a_get_with_a_body_leaves_no_request_behind(served: Served) -> None:
    inner = head("GET /tables HTTP/1.1")
    with socket.create_connection(("127.0.0.1", served.server.server_port), timeout=5) as peer:
        peer.sendall(head("GET /health HTTP/1.1", f"Content-Length: {len(inner)}") + inner)
        got = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    assert got.count(b"HTTP/1.1 ") == 1


def test_requests_sent_together_by_a_client_that_then_only_reads_are_all_answered(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.server_port), timeout=5) as peer:
        peer.sendall(50 * (head(LOOKUP, "Content-Length: 8") + bytes(8)) + head("GET /health HTTP/1.1"))
        peer.shutdown(socket.SHUT_WR)
        got = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    assert got.count(b"HTTP/1.1 200 ") == 51
