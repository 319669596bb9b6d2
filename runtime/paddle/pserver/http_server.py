# SPDX-License-Identifier: Apache-2.0
"""Serves rows of followed tables over HTTP, for programs without Paddle.

    GET  /health                 200 while the age of every table is within its limit, else 503
    GET  /tables                 JSON: width, rows, batch and age of each table
    POST /tables/NAME/rows       ids -> rows

The request body contains the ids as little-endian int64. The response contains the rows as little-endian float32, and
the headers X-Shape, X-Batch and X-Age-S. With `Content-Type: application/json` both are JSON: {"ids": [7, -3]} ->
{"rows": [[...], ...], "batch": ..., "age_s": ...}. A connection can carry any number of requests. A lookup gets 503 if
the table's copy is older than its limit, or if other requests already use too much memory.

There is one deadline for receiving a request and one for sending its response. An idle connection is closed after a
time limit, or earlier if another client needs its place.
"""

from __future__ import annotations

import contextlib
import hmac
import io
import json
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import unquote

import numpy as np

from paddle.errors import ConfigError
from paddle.pserver.followed import Followed, StaleCopy
from paddle.threads import ServiceThread
from paddle_node.contract import checked_json
from paddle_node.contract.classes import dataclass
from paddle_node.linux.inet import discard_unread

MAX_IDS = 1 << 16
"""The maximum number of ids in one request."""
_MAX_RESPONSE = 64 << 20  # bytes of memory
_IDS_JSON, _ROWS_JSON = 4, 24  # memory of JSON and its objects: times the bytes of the text, and of the rows
_PLACE_S = 1.0  # until the thread of a closed connection has ended
_MOST_HEAD = 64 << 10  # bytes of a request before its body, from clients that are not authorized yet
_BUFFER = 1 << 16  # head and body in one packet if they fit
_BUSY = "the memory for requests is full: try again in a second"
_LOCAL = ("127.0.0.1", "::1", "localhost")
_JSON, _RAW = "application/json", "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on the resources that HTTP clients can use.

    Attributes:
        connections: maximum number of simultaneous connections; a further connection closes the one that has been idle
            longest.
        nbytes: maximum memory for all requests and responses in progress, in bytes.
        request_s: maximum time in seconds to receive a request from its first byte to its last, and to send its
            response.
        idle_s: maximum time in seconds between two requests on a connection.
    """

    connections: int = 256
    nbytes: int = 256 << 20
    request_s: float = 10.0
    idle_s: float = 120.0


def check_token(host: str, token: str) -> None:
    """Refuse a token that is too short, and an address that needs a token without one.

    Raises:
        ConfigError: the token is unsuitable.
    """
    if host not in _LOCAL and not token:
        raise ConfigError(
            f"serve: {host} can be reached from other machines; give a token of at least 16 characters in --token_file "
            "or the variable PADDLE_SERVE_TOKEN"
        )
    if token and (len(token) < 16 or not token.isascii() or not token.isprintable()):
        raise ConfigError("serve: expected a token of at least 16 printable ASCII characters")


class TableHTTPServer(HTTPServer):
    """An HTTP server that answers lookups; `serve_forever` blocks. A context manager.

    Attributes:
        tables: the followed tables by name.
        limits: the bounds on what clients can use.
    """

    request_queue_size = 128

    def __init__(
        self,
        tables: Mapping[str, Followed],
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        limits: Limits | None = None,
    ) -> None:
        """Bind the address and listen.

        Args:
            host: an address of this machine; a token is required unless it is a loopback address.
            port: the port to listen on; 0 means any free port.
            token: required in requests as `Authorization: Bearer TOKEN`, or empty for none.

        Raises:
            ConfigError: the address cannot be used, or needs a token.
        """
        check_token(host, token)
        self.tables, self._token = tables, token.encode()
        self.limits = limits or Limits()
        self._places = threading.BoundedSemaphore(self.limits.connections)
        self._lock = threading.Lock()
        self._nbytes = 0
        self._idle: dict[socket.socket, None] = {}  # the one that is idle for longest first
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"serve: cannot listen on {host}:{port}: {error.strerror}; --port=0 uses any free port"
            ) from None

    def is_allowed(self, headers: Any) -> bool:
        """Return whether a request is authorized: it has the token, or addresses this machine by a local name."""
        if self._token:
            given = headers.get("Authorization", "").encode("utf-8", "replace")
            return hmac.compare_digest(given, b"Bearer " + self._token)
        host = headers.get("Host", "").rpartition(":")[0] or headers.get("Host", "")
        return host.strip("[]") in _LOCAL  # a page of another site names its own host

    def reserve(self, nbytes: int) -> bool:
        """Reserve memory for a request; return False if there is not enough until `release` is called."""
        with self._lock:
            if self._nbytes + nbytes > self.limits.nbytes:
                return False
            self._nbytes += nbytes
            return True

    def release(self, nbytes: int) -> None:
        """Release reserved memory."""
        with self._lock:
            self._nbytes -= nbytes

    def mark(self, connection: socket.socket, *, is_idle: bool) -> None:
        """Record whether a connection is idle, that is, waits for its next request."""
        with self._lock:
            self._idle.pop(connection, None)
            if is_idle:
                self._idle[connection] = None

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread. If there are too many, close an idle connection, or else the new one."""
        if not self._places.acquire(blocking=False) and not (
            self._close_idle() and self._places.acquire(timeout=_PLACE_S)
        ):
            self.shutdown_request(request)
            return
        ServiceThread(lambda: self._serve(request, client_address), name="paddle-http")

    def _close_idle(self) -> bool:
        with self._lock:
            connection = next(iter(self._idle), None)
            if connection is not None:
                del self._idle[connection]
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # under the lock: it is not closed yet
        return connection is not None

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the peer has disconnected, or is too slow
        finally:
            self.mark(request, is_idle=False)
            discard_unread(request)
            self.shutdown_request(request)
            self._places.release()


class _Input(io.RawIOBase):
    """Reads a socket until a deadline, at most `room` bytes."""

    def __init__(self, sock: socket.socket, request_s: float) -> None:
        self._sock, self._request_s = sock, request_s
        self.ends_at, self.room = 0.0, 0

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request is too slow")
        if self.room <= 0:
            raise TimeoutError("the request is too long")  # closes the connection
        self._sock.settimeout(left)
        got = self._sock.recv_into(into, min(len(into), self.room))
        self.room -= got
        self.ends_at = min(self.ends_at, time.monotonic() + self._request_s)
        return got


class _Output(io.RawIOBase):
    """Writes to a socket until a deadline."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.ends_at = 0.0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client reads too slowly")
        self._sock.settimeout(left)
        return self._sock.send(data)


class _Handler(BaseHTTPRequestHandler):
    server: TableHTTPServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "paddle", ""

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = _Input(self.connection, self.server.limits.request_s)
        self._output = _Output(self.connection)
        self.rfile = io.BufferedReader(self._input)
        self.wfile = io.BufferedWriter(self._output, _BUFFER)
        self._reserved, self._idle_s = 0, self.server.limits.request_s
        self._expects_100 = False

    def handle_one_request(self) -> None:
        """Serve one request: wait for its first byte, then enforce a deadline."""
        self.server.mark(self.connection, is_idle=True)
        self._input.ends_at, self._input.room = time.monotonic() + self._idle_s, _MOST_HEAD
        self._expects_100 = False
        self._output.ends_at = self._input.ends_at + 2 * self.server.limits.request_s
        try:
            super().handle_one_request()
        finally:
            self._release()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the error is sent to the client."""

    def handle_expect_100(self) -> bool:
        """Record that the client waits for status 100, which is sent once its request is admitted."""
        self._expects_100 = True
        return True

    def _admit(self) -> bool:
        """Return whether a request is accepted; refuse it if it is unauthorized, or if a proxy may see another end.

        Its connection may be idle afterwards.
        """
        self.server.mark(self.connection, is_idle=False)
        if not self.server.is_allowed(self.headers):
            self._refuse(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")
            return False
        self._idle_s = self.server.limits.idle_s
        lengths = self.headers.get_all("Content-Length", [])
        is_clear = len(lengths) < 2 and all(each.isascii() and each.isdigit() for each in lengths)
        # The parser ends the headers at a malformed line, such as "Content-Length : 8", and unfolds lines.
        is_plain = not self.headers.defects and not any("\n" in each for each in self.headers.values())
        if "Transfer-Encoding" in self.headers or not is_clear or not is_plain:
            self._refuse(
                HTTPStatus.BAD_REQUEST,
                "expected well-formed headers with one Content-Length and without Transfer-Encoding",
            )
            return False
        return True

    def do_GET(self) -> None:
        """Answer a GET request."""
        if not self._admit():
            return
        if self.headers.get("Content-Length", "0") != "0":
            self.close_connection = True  # the body is not read
        if self.path == "/health":
            old = [one.name for one in self.server.tables.values() if one.age_s > one.within_s]
            status = HTTPStatus.SERVICE_UNAVAILABLE if old else HTTPStatus.OK
            self._answer(status, _JSON, json.dumps({"stale": old}).encode())
        elif self.path == "/tables":
            described = [{"name": name} | table.state() for name, table in self.server.tables.items()]
            self._answer(HTTPStatus.OK, _JSON, json.dumps(described).encode())
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "expected /health, /tables or POST /tables/NAME/rows")

    def do_POST(self) -> None:
        """Answer a POST request, which looks up rows by their ids."""
        if not self._admit():
            return
        length, kind = self.headers.get("Content-Length", ""), self.headers.get_content_type()
        most = 24 * MAX_IDS if kind == _JSON else 8 * MAX_IDS
        if not 0 < len(length) < 10 or int(length) > most:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected a Content-Length of at most {most}")
            return
        if not self._reserve(int(length) * (_IDS_JSON if kind == _JSON else 1)):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, _BUSY)
            return
        self._input.room = int(length)
        if self._expects_100:
            super().handle_expect_100()
            self.wfile.flush()
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            return
        front, _, name = self.path.removesuffix("/rows").rpartition("/")
        table = self.server.tables.get(unquote(name))
        if front != "/tables" or not self.path.endswith("/rows") or table is None:
            text = f"expected /tables/NAME/rows, where NAME is one of {', '.join(self.server.tables)}"
            self._refuse(HTTPStatus.NOT_FOUND, text, is_read=True)
            return
        try:
            ids = _json_ids(body) if kind == _JSON else np.frombuffer(body, "<i8")
        except (ValueError, TypeError, OverflowError):
            self._refuse(HTTPStatus.BAD_REQUEST, "the ids cannot be read: expected int64", is_read=True)
            return
        nbytes = 4 * len(ids) * table.width * (_ROWS_JSON if kind == _JSON else 1)
        if len(ids) > MAX_IDS or nbytes > _MAX_RESPONSE:
            text = f"{len(ids)} ids are too many: request fewer"
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, is_read=True)
            return
        if not self._reserve(nbytes):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, _BUSY, is_read=True)
            return
        self._look_up(table, ids, is_json=kind == _JSON)

    def _look_up(self, table: Followed, ids: Any, *, is_json: bool) -> None:
        try:
            rows, batch, age_s = table.lookup(ids)
        except StaleCopy as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error), is_read=True)
            return
        if is_json:
            said = {"rows": rows.tolist(), "batch": batch, "age_s": round(age_s, 3)}
            self._answer(HTTPStatus.OK, _JSON, json.dumps(said).encode())
            return
        shape = f"{rows.shape[0]},{rows.shape[1]}"
        more = {"X-Shape": shape, "X-Batch": str(batch), "X-Age-S": f"{age_s:.3f}"}
        flat = rows.astype("<f4", copy=False).reshape(-1)
        self._answer(HTTPStatus.OK, _RAW, flat.view(np.uint8).data, more)

    def _reserve(self, nbytes: int) -> bool:
        if not self.server.reserve(nbytes):
            return False
        self._reserved += nbytes
        return True

    def _release(self) -> None:
        self.server.release(self._reserved)
        self._reserved = 0

    def _refuse(self, status: HTTPStatus, why: str, *, is_read: bool = False) -> None:
        """Release the request's memory and send an error response; close the connection if the body was not read."""
        self._release()
        self.close_connection = self.close_connection or not is_read
        self._answer(status, _JSON, json.dumps({"error": why}).encode())

    def _answer(
        self, status: HTTPStatus, kind: str, body: bytes | memoryview, more: Mapping[str, str] | None = None
    ) -> None:
        self._output.ends_at = time.monotonic() + self.server.limits.request_s
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}.items():
            self.send_header(name, value)
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def _json_ids(body: bytes) -> Any:
    ids = checked_json.as_object(body).get("ids")
    if type(ids) is not list or not all(type(one) is int for one in ids):
        raise TypeError("expected a list of integers")
    return np.array(ids, np.int64)
