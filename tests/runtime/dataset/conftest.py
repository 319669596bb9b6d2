# SPDX-License-Identifier: Apache-2.0
"""Where data sets come from in tests: real files beside the repository, or a server in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """PADDLE_DATA_HOME with the real files; skips where they are absent."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the real data sets in {SHARED}")
    monkeypatch.setenv("PADDLE_DATA_HOME", str(SHARED))
    return SHARED


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PADDLE_DATA_HOME that does not exist yet."""
    home = tmp_path / "home"
    monkeypatch.setenv("PADDLE_DATA_HOME", str(home))
    return home


class Site:
    """A web server that gives the replies it was told, one a request, the last one for ever.

    A reply is (status, body, promised length).
    """

    def __init__(self) -> None:
        self.replies: list[tuple[int, bytes, int]] = []
        self.requests: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.path)
                status, body, length = site.replies[min(len(site.requests), len(site.replies)) - 1]
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def gives(self, *bodies: bytes) -> None:
        self.replies = [(200, body, len(body)) for body in bodies]


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)
