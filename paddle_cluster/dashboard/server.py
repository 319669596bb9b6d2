# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the dashboard, on 127.0.0.1 only, with a bounded number of connections, one thread each.

    GET  /TOKEN/            the page, including its initial content
    GET  /TOKEN/page.js     and the other files of the page
    GET  /TOKEN/events      server-sent events: ?job=ID
    GET  /TOKEN/log         a search in the merged log: ?job=ID&text=...&process=trainer-2
    GET  /TOKEN/download    the merged log as a file: ?job=ID&process=trainer-2
    POST /TOKEN/stop        {"job": ID, "force": false}
    POST /TOKEN/stacks      {"job": ID, "processes": ["trainer-2"]}

Each connection serves one request. This module does not depend on how a job is stopped or what a row contains.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from paddle_cluster.control import control_client, log_lines
from paddle_cluster.control.control_client import ControlClient, ControlLost, connect
from paddle_cluster.control.control_protocol import Frame
from paddle_cluster.control.store import KnownJob
from paddle_cluster.dashboard import changes, guard, log_view
from paddle_cluster.dashboard.guard import Refused, Request
from paddle_cluster.dashboard.job_board import JobBoard
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.wrapping import visible_lines
from paddle_node.contract import checked_json
from paddle_node.linux.inet import discard_unread

CONNECTIONS = 64
STREAMS = 24  # of these: an open page has one
QUIET_S = 20.0  # a peer that sends or accepts nothing for this time is disconnected
CLOSE_S = 3.0

_PAGE = Path(__file__).parent / "page"
_JSON = "application/json"
_KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_FILES: Mapping[str, str] = {
    path.name: _KINDS[path.suffix] for path in _PAGE.iterdir() if path.suffix in _KINDS
}
_FIRST = b"{}<!-- what the page shows first -->"


class DashboardServer(HTTPServer):
    """The HTTP server of one user's dashboard.

    Args:
        port: port to listen on; 0 means any free port.

    Attributes:
        token: access token, which also permits stopping jobs.
    """

    request_queue_size = 32

    def __init__(self, board: JobBoard, port: int = 0) -> None:
        self.board = board
        self.token = guard.new_token()
        self.closing = threading.Event()
        self.streams = threading.BoundedSemaphore(STREAMS)
        self._open: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def address(self) -> str:
        """The URL of the page, with the token."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread; close it if there are too many."""
        with self._lock:
            if len(self._open) >= CONNECTIONS or self.closing.is_set():
                self.shutdown_request(request)
                return
            thread = threading.Thread(
                target=self._serve, args=(request, client_address), name="dashboard", daemon=True
            )
            self._open[request] = thread
        thread.start()

    def server_close(self) -> None:
        """Stop listening, close every connection and wait for their threads."""
        super().server_close()
        self.closing.set()
        with self._lock:
            left = dict(self._open)
        for connection in left:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + CLOSE_S
        for thread in left.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error of a connection: a browser that disconnected or sent nothing."""

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            self.handle_error(request, client_address)
        finally:
            discard_unread(request)
            with self._lock:
                del self._open[request]
            self.shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    """The handler of one HTTP request."""

    server: DashboardServer
    timeout = QUIET_S
    server_version = "paddle"
    sys_version = ""

    def log_message(self, *_: Any) -> None:
        """Print nothing: an address contains the token."""

    def _answer(self) -> None:
        try:
            request = guard.admit(
                self.command,
                self.path,
                {name.lower(): value for name, value in self.headers.items()},
                token=self.server.token,
                port=self.server.server_port,
            )
            self._route(request)
        except Refused as refused:
            self._send(refused.status, "text/plain; charset=utf-8", f"{refused}\n".encode())
        except ControlLost as lost:
            self._send_json({"told": str(lost)}, HTTPStatus.CONFLICT)

    do_GET = do_POST = _answer  # noqa: N815 - http.server looks for these names

    def _route(self, request: Request) -> None:
        if request.path in _FILES:
            return self._file(request)
        found = _ROUTES.get(request.path)
        if found is None:
            raise Refused(HTTPStatus.NOT_FOUND, "no page at this address")
        method, answer = found
        if request.method != method:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"expected {method}, got {request.method}")
        return answer(self, request)

    def _file(self, request: Request) -> None:
        if request.method != "GET":
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"expected GET, got {request.method}")
        self._send(HTTPStatus.OK, _FILES[request.path], (_PAGE / request.path).read_bytes())

    def _page(self, request: Request) -> None:
        first = changes.everything(self.server.board, request.query.get("job", ""))
        page = (_PAGE / "index.html").read_bytes().replace(_FIRST, changes.as_text(first).encode())
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", page)

    def _events(self, request: Request) -> None:
        if not self.server.streams.acquire(blocking=False):
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{STREAMS} pages are already open; close some")
        try:
            parts = changes.stream(self.server.board, request.query.get("job", ""), self.server.closing.wait)
            self._send_parts("text/event-stream; charset=utf-8", parts)
        finally:
            self.server.streams.release()

    def _log(self, request: Request) -> None:
        query = request.query
        job = self._job(query.get("job", ""))
        self._send_json(log_view.search(job, query.get("text", ""), query.get("process", "")))

    def _download(self, request: Request) -> None:
        job, process = self._job(request.query.get("job", "")), request.query.get("process", "")
        if process and not log_lines.PROCESS.fullmatch(process):
            raise Refused(
                HTTPStatus.BAD_REQUEST,
                f"process: expected a process (such as trainer-2), a role, or launcher, got {process!r:.80}",
            )
        name = "-".join(filter(None, (job.title, process)))
        headers = {"Content-Disposition": f'attachment; filename="{name}.log"'}
        self._send_parts("text/plain; charset=utf-8", log_view.whole(job, process), headers)

    def _curves(self, request: Request) -> None:
        self._send_json(changes.curves(self._job(request.query.get("job", ""))))

    def _stop(self, request: Request) -> None:
        asked = self._body()
        job = self._job(str(asked.get("job")))
        self._send_json({"told": stop(job, force=asked.get("force") is True)})

    def _stacks(self, request: Request) -> None:
        asked = self._body()
        job, names = self._job(str(asked.get("job"))), asked.get("processes")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Refused(HTTPStatus.BAD_REQUEST, f"processes: expected a list of names, got {names!r:.80}")
        self._send_json({"stacks": stacks(job, names)})

    def _job(self, job_id: str) -> KnownJob:
        job = self.server.board.job(job_id)
        if job is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"unknown job {job_id!r:.140}")
        return job

    def _body(self) -> dict[str, Any]:
        size = guard.body_size({name.lower(): value for name, value in self.headers.items()})
        try:
            return checked_json.as_object(self.rfile.read(size))
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"expected a JSON object: {error}") from error

    def _send_json(self, value: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, _JSON, changes.as_text(value).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self._begin(status, kind, {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _send_parts(self, kind: str, parts: Iterable[bytes], more: Mapping[str, str] | None = None) -> None:
        self._begin(HTTPStatus.OK, kind, more or {})
        for part in parts:
            self.wfile.write(part)

    def _begin(self, status: HTTPStatus, kind: str, more: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**guard.HEADERS, "Content-Type": kind, "Connection": "close", **more}.items():
            self.send_header(name, value)
        self.end_headers()


_ROUTES: Mapping[str, tuple[str, Callable[[_Handler, Request], None]]] = {
    "": ("GET", _Handler._page),
    "events": ("GET", _Handler._events),
    "log": ("GET", _Handler._log),
    "curves": ("GET", _Handler._curves),
    "download": ("GET", _Handler._download),
    "stop": ("POST", _Handler._stop),
    "stacks": ("POST", _Handler._stacks),
}
"""Path after the token -> the allowed method and its handler."""


ANSWER_S = 5.0
STACKS_S = 8.0


def stop(job: KnownJob, *, force: bool) -> str:
    """Ask a job to stop; return a message for the page.

    Raises:
        ControlLost: the launcher does not accept the request.
    """
    with _asking(job) as (client, events):
        client.send("stop", signal="SIGTERM", force=force, by=control_client.me("dashboard"))
        client.send("look")  # its answer shows that the previous request has arrived
        for frame in _frames(job, events, ANSWER_S):
            if frame.kind == "status":
                return f"asked {job.title} to " + ("end immediately" if force else "stop")
    raise ControlLost(f"{job.job_id}: the launcher has not answered for {ANSWER_S:.0f} s")


def stacks(job: KnownJob, names: Sequence[str]) -> dict[str, str]:
    """Request the stack traces of processes and return them by name; an answer that is late has a note instead.

    Raises:
        ControlLost: the launcher does not accept the request.
    """
    found: dict[str, str] = {}
    with _asking(job) as (client, events):
        client.send("stacks", procs=list(names))
        for frame in _frames(job, events, STACKS_S):
            if frame.kind == "stacks":
                found[frame.record.process] = frame.record.text
            if found.keys() >= set(names):
                break
    silent = f"(no answer in {STACKS_S:.0f} s)"
    return {name: visible_lines(found.get(name, silent)) for name in names}


@contextlib.contextmanager
def _asking(job: KnownJob) -> Iterator[tuple[ControlClient, queue.SimpleQueue[Any]]]:
    if job.ended:
        raise ControlLost(f"{job.job_id} has already ended: {job.describe()}")
    if not job.running or not job.record.socket:
        raise ControlLost(
            f"{job.job_id}: no launcher on this machine controls it ({job.describe()}); "
            f"`{PROGRAM} stop {job.job_id}` stops it through its nodes"
        )
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client, _ = connect(Path(job.record.socket), events)
    try:
        yield client, events
    finally:
        client.close()


def _frames(job: KnownJob, events: queue.SimpleQueue[Any], timeout_s: float) -> Iterator[Frame]:
    """Yield the frames that the launcher sends within the given number of seconds."""
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            event = events.get(timeout=left_s)
        except queue.Empty:
            return
        if not isinstance(event, Frame):
            raise ControlLost(f"{job.job_id}: the launcher has exited: {event.reason}")
        if event.kind == "refused":
            raise ControlLost(f"{job.job_id}: the launcher refused the request: {event.record.reason}")
        yield event
