# SPDX-License-Identifier: Apache-2.0
"""The wire form of Kubernetes' API: requests, Status objects, selectors, and watches as chunked streams."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Object = dict[str, Any]
Answer = tuple[int, dict[str, str], Object]
NAMESPACE = "team"
TOKEN = "secret-token-of-a-test"
KINDS = {"jobs": "Job", "pods": "Pod", "secrets": "Secret", "services": "Service", "events": "Event"}
GROUPS = {"jobs": "batch"}
CUT, HOLD = "cut", "hold"
_VERSIONS = {"batch/v1": ["jobs"], "v1": ["pods", "secrets", "services", "events"]}


def status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> Answer:
    """A refusal as the API has it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return code, headers or {}, {**body, "message": message, "reason": reason, "code": code}


def forbidden(verb: str, resource: str) -> str:
    """What an API server says to who may not."""
    group = GROUPS.get(resource, "")
    return (
        f'{resource}{"." + group if group else ""} is forbidden: User "someone" cannot {verb} resource '
        f'"{resource}" in API group "{group}" in the namespace "{NAMESPACE}"'
    )


def chosen(items: Sequence[Object], query: Mapping[str, str]) -> list[Object]:
    found = []
    labels = [term.split("=") for term in filter(None, query.get("labelSelector", "").split(","))]
    terms = [term.split("=") for term in filter(None, query.get("fieldSelector", "").split(","))]
    for made in items:
        have = made["metadata"].get("labels", {})
        values = [(_field(made, path), value) for path, value in terms]
        if all(have.get(name) == value for name, value in labels) and all(a == b for a, b in values):
            found.append(made)
    return found


def _field(made: Any, path: str) -> Any:
    for part in path.split("."):
        made = made.get(part, {})
    return made


def discovered(path: str) -> Answer:
    """What kubectl is told of the kinds that there are."""
    groups = [{"groupVersion": "batch/v1", "version": "v1"}]
    known: dict[str, Object] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "groups": [{"name": "batch", "versions": groups}]},
    }
    for prefix, version in (("/apis/", "batch/v1"), ("/api/", "v1")):
        resources = [
            {"name": name, "kind": KINDS[name], "namespaced": True, "verbs": ["create", "get", "patch"]}
            for name in _VERSIONS[version]
        ]
        made = {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
        known[prefix + version] = made
    found = known.get(path)
    return (200, {}, found) if found else status(404, "NotFound", f"{path} not found")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20
    disable_nagle_algorithm = True  # head and body are two writes

    def setup(self) -> None:
        """Its connection can be ended from outside."""
        super().setup()
        self.server.state.connections.append(self.connection)  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""

    def _serve(self) -> None:
        server = self.server.state  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        words = [unquote(word) for word in parts.path.strip("/").split("/")]
        at = words.index("namespaces") if "namespaces" in words else len(words)
        if len(words) < at + 3:
            self._answer(*discovered(parts.path))
            return
        namespace, resource, name = words[at + 1], words[at + 2], "".join(words[at + 3 :])
        verbs = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "GET": "get" if name else "list"}
        verb = "watch" if query.get("watch") else verbs[self.command]
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        instead = server.note(verb, resource)
        given = self.headers.get("Authorization", "")
        if given != f"Bearer {TOKEN}" and (given or not server.lets_all_in):
            instead = status(401, "Unauthorized", "Unauthorized")
        elif namespace != NAMESPACE:
            instead = status(404, "NotFound", f'namespaces "{namespace}" not found')
        if instead == HOLD:
            server.closed.wait()
        if isinstance(instead, tuple):
            self._answer(*instead)
        elif verb == "watch":
            self._stream(server.watch(resource, query), cut=instead == CUT)
        else:
            answer = server.handle(verb, resource, name, query, body)
            if instead is None:
                self._answer(*answer)
        if instead in (CUT, HOLD):
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server asks for these names

    def _answer(self, code: int, headers: Mapping[str, str], body: Object) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        for name, value in {**headers, "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterator[Object], cut: bool) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            for event in events:
                data = json.dumps(event).encode() + b"\n"
                if cut:  # in the middle of an event
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data[:10])
                    return
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
