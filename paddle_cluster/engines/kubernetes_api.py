# SPDX-License-Identifier: Apache-2.0
"""Requests to a cluster's API server, each with a deadline. Requests that can succeed later are retried.

The official client reads kubeconfigs, creates and refreshes tokens, and opens TLS; the objects are plain dictionaries,
because importing its models would take a second.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from paddle_cluster.config.settings import KubernetesSettings
from paddle_cluster.text.wrapping import visible
from paddle_node.contract import checked_json
from paddle_node.contract.classes import NamedTuple

ANSWER_S = 10.0
TRIES_S = 30.0
AGAIN_S, AGAIN_MOST_S = 0.2, 5.0
LARGEST = 64 << 20  # of an answer or of a line of a watch, in bytes
SHOWN = 400
LIBRARY = "kubernetes"
INSTALL = "pip install 'paddle-cluster[kubernetes]'"
RBAC = "docker_cluster/kubernetes/rbac.yaml"

FORBIDDEN, NOT_FOUND, CONFLICT, GONE, TOO_MANY = 403, 404, 409, 410, 429
_METHODS = {"create": "POST", "get": "GET", "list": "GET", "patch": "PATCH", "delete": "DELETE"}
_GROUPS = {
    "jobs": "/apis/batch/v1",
    "pods": "/api/v1",
    "secrets": "/api/v1",
    "services": "/api/v1",
    "events": "/api/v1",
}
_OF_A_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

Object = dict[str, Any]


class ApiError(Exception):
    """Raised when a request fails; the text names the request, the server and the reason.

    Attributes:
        status: HTTP status; 0 means there was no answer.
        may_be_done: whether an earlier attempt may have succeeded although its answer was lost.
        wait_s: time in seconds for which the server asks clients to wait.
    """

    def __init__(self, text: str, status: int = 0, may_be_done: bool = False, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.may_be_done = may_be_done
        self.wait_s = wait_s


class _Again(NamedTuple):
    """A failure that a retry may overcome, with its reason."""

    text: str
    wait_s: float
    may_be_done: bool


def is_installed() -> bool:
    """Return whether the official Kubernetes client is installed."""
    return importlib.util.find_spec(LIBRARY) is not None


class Api:
    """A client of a cluster's API server, for one namespace.

    Args:
        stopping: event after which no requests are sent, until `resume`.

    Raises:
        ApiError: there is no configuration, or it is invalid.
    """

    def __init__(self, settings: KubernetesSettings, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._watched: Any = None
        self._configuration, self.namespace = _configured(settings)
        from kubernetes import client  # seconds of imports, which other engines do not need

        self._pool = client.ApiClient(self._configuration).rest_client.pool_manager
        self.host = urlsplit(self._configuration.host).hostname or "localhost"

    def call(
        self,
        verb: str,
        resource: str,
        name: str = "",
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        tries_s: float = TRIES_S,
    ) -> Object:
        """Send a request and return the answer; retry until there is one or `tries_s` seconds have passed.

        Raises:
            ApiError: the server refused the request or did not answer in time.
        """
        deadline = time.monotonic() + tries_s
        wait_s, may_be_done = AGAIN_S, False
        while True:
            if self._stopping.is_set():
                raise ApiError("the request was cancelled", may_be_done=may_be_done)
            answer = self._try(verb, resource, name, body, query or {}, may_be_done)
            if not isinstance(answer, _Again):
                return answer
            may_be_done = may_be_done or answer.may_be_done
            pause_s = max(answer.wait_s, wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            if time.monotonic() + pause_s > deadline:
                raise ApiError(self._text(verb, resource, answer.text), may_be_done=may_be_done)
            if self._stopping.wait(pause_s):
                raise ApiError("the request was cancelled", may_be_done=may_be_done)
            wait_s = min(AGAIN_MOST_S, 2 * wait_s)

    def _try(
        self,
        verb: str,
        resource: str,
        name: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str],
        may_be_done: bool,
    ) -> Object | _Again:
        import urllib3

        kind = "application/merge-patch+json" if verb == "patch" else "application/json"
        try:
            answer = self._request(_METHODS[verb], self._url(resource, name, query), kind, body, ANSWER_S)
            with contextlib.closing(answer):
                data = answer.read(LARGEST, decode_content=True)
        except urllib3.exceptions.SSLError as error:
            raise ApiError(self._text(verb, resource, f"TLS failed: {error}")) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return _Again(f"no answer: {error}", 0.0, may_be_done=True)
        if answer.status == TOO_MANY or answer.status >= 500:
            return _Again(_reason_of(answer.status, data), _retry_after(answer.headers), answer.status >= 500)
        if answer.status >= 400:
            raise ApiError(self._refusal(verb, resource, answer.status, data), answer.status, may_be_done)
        try:
            return _object(data)
        except ValueError:  # possibly from a proxy
            return _Again(f"the answer has status {answer.status} but no object", 0.0, may_be_done=True)

    def watch(self, resource: str, query: Mapping[str, str], window_s: float) -> Iterator[Object]:
        """Yield the changes of objects until the server ends the watch, after about `window_s` seconds.

        Raises:
            ApiError: the watch was lost. If its status is GONE, the known version is too old: list the objects again.
        """
        import urllib3

        asked = {**query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": f"{window_s:.0f}"}
        try:
            url = self._url(resource, "", asked)
            answer = self._request("GET", url, "application/json", None, window_s + ANSWER_S)
            self._watched = answer
            with contextlib.closing(answer):
                if answer.status >= 400:
                    text = self._refusal(
                        "watch", resource, answer.status, answer.read(LARGEST, decode_content=True)
                    )
                    raise ApiError(text, answer.status, wait_s=_retry_after(answer.headers))
                yield from _events(answer, self._stopping)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ApiError(self._text("watch", resource, f"the watch was lost: {error}")) from error
        finally:
            self._watched = None

    def resume(self) -> None:
        """Allow requests again after a stop, such as those that delete the job."""
        self._stopping = threading.Event()

    def close(self) -> None:
        """Close the client's idle connections."""
        self._pool.clear()

    def interrupt(self) -> None:
        """End the running watch. May be called from any thread."""
        watched = self._watched
        with contextlib.suppress(Exception):  # it ends with its window too
            watched.shutdown()

    def _request(
        self, method: str, url: str, kind: str, body: Mapping[str, Any] | None, read_s: float
    ) -> Any:
        import urllib3

        headers = {"Accept": "application/json", "User-Agent": "paddle-cluster"}
        for token in self._configuration.auth_settings().values():
            headers[token["key"]] = token["value"]
        if body is not None:
            headers["Content-Type"] = kind
        return self._pool.request(
            method,
            url,
            body=None if body is None else json.dumps(body).encode(),
            headers=headers,
            retries=False,
            redirect=False,
            preload_content=False,
            timeout=urllib3.Timeout(connect=ANSWER_S, read=read_s),
        )

    def _url(self, resource: str, name: str, query: Mapping[str, str]) -> str:
        path = f"{_GROUPS[resource]}/namespaces/{quote(self.namespace)}/{resource}"
        tail = f"/{quote(name)}" if name else ""
        return f"{self._configuration.host}{path}{tail}" + (f"?{urlencode(query)}" if query else "")

    def _text(self, verb: str, resource: str, why: str) -> str:
        return f"Kubernetes did not {verb} {resource} in namespace {self.namespace}: {visible(why)[:SHOWN]}"

    def _refusal(self, verb: str, resource: str, status: int, data: bytes) -> str:
        """Describe the refused request, the reason, and the next step."""
        text = self._text(verb, resource, _reason_of(status, data))
        if status == FORBIDDEN and b"exceeded quota" not in data and b"violates" not in data:
            return f"{text} ({RBAC} defines the required role)"
        if status == NOT_FOUND and b"namespaces" in data:
            return f"{text} (the namespace is K8S_NAMESPACE in conf.py)"
        return text


def _configured(settings: KubernetesSettings) -> tuple[Any, str]:
    """Return the client's configuration and the namespace."""
    from kubernetes import client, config

    made = client.Configuration()
    file, context = str(settings.kubeconfig) if settings.kubeconfig else None, settings.context or None
    namespace = ""
    try:
        if file is None and context is None and _OF_A_POD.exists() and not _has_kubeconfig(config):
            config.load_incluster_config(client_configuration=made)
            namespace = _OF_A_POD.read_text(encoding="utf-8").strip()
        else:
            config.load_kube_config(file, context, client_configuration=made, persist_config=False)
            contexts, current = config.list_kube_config_contexts(file)
            found = next((each for each in contexts if each["name"] == context), current)
            namespace = str(found["context"].get("namespace") or "")
    except Exception as error:  # of the library, yaml or a plugin: the configuration is unusable
        raise ApiError(
            f"cannot connect to a Kubernetes cluster: {type(error).__name__}: {visible(str(error))[:SHOWN]}; "
            "expected a kubeconfig (~/.kube/config, KUBECONFIG, K8S_KUBECONFIG), or a pod with a service account"
        ) from error
    return made, settings.namespace or namespace or "default"


def _has_kubeconfig(config: Any) -> bool:
    return any(
        Path(each).expanduser().exists() for each in config.KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep)
    )


def _events(answer: Any, stopping: threading.Event) -> Iterator[Object]:
    """Yield the objects in the lines of a watch response."""
    rest = b""
    for piece in answer.stream(1 << 16, decode_content=True):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LARGEST:
            raise ValueError("the last event is incomplete")
        for line in filter(None, lines):
            event = _object(line)
            made = event.get("object") or {}
            if event.get("type") == "ERROR":
                raise ApiError(f"the watch ended: {_cut(made)}", int(made.get("code") or 0))
            yield event
        if stopping.is_set():
            return


def _object(data: bytes) -> Object:
    return checked_json.as_object(data or b"{}")


def _reason_of(status: int, data: bytes) -> str:
    """Return the message of a refusal: a Status, or the text of a proxy."""
    try:
        text = str(_object(data).get("message") or "")
    except ValueError:
        text = data[:SHOWN].decode("utf-8", "replace")
    return f"{status} {text or 'without a message'}"


def _cut(made: Object) -> str:
    return visible(str(made.get("message") or made.get("reason") or "no reason given")[:SHOWN])


def _retry_after(headers: Mapping[str, str]) -> float:
    text = headers.get("Retry-After", "")
    return float(min(int(text), TRIES_S)) if text.isascii() and text.isdigit() else 0.0
