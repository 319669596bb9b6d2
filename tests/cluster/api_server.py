# SPDX-License-Identifier: Apache-2.0
"""A small API server of Kubernetes: objects, watches, roles, and what becomes of a Job.

It speaks the wire form (create, get, list, watch, patch, delete; Status objects) for one namespace. A Job that is not
suspended gets its pods; a kubelet that the test gives starts their commands with the Secret's values in their
environment. Answers can be replaced by others, cut off or held back.
"""

from __future__ import annotations

import contextlib
import copy
import json
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.cluster.api_wire import (
    GROUPS,
    KINDS,
    NAMESPACE,
    TOKEN,
    Answer,
    Handler,
    Object,
    chosen,
    forbidden,
    status,
)
from tests.cluster.kubelets import Kubelet

INDEX = "batch.kubernetes.io/job-completion-index"


class ApiServer:
    """One namespace of a cluster.

    Attributes:
        rules: (verb, resource) that are granted; None: all of them.
        asked: every (verb, resource) that came.
        instead: (verb, resource) -> what the next requests get instead of an answer, in turn: an answer, CUT (the
            connection ends after the work was done), or HOLD (nothing, until `close`).
        status: what a pod's status becomes by its index, instead of being run; None: it is run.
        refused_pods: the text of the event that says why there are none, or empty.
        bodies: resource -> what was created last.
        lets_all_in: who has no token too; kubectl sends none without TLS.
    """

    def __init__(self, kubelet: Kubelet, listener: socket.socket | None = None) -> None:
        self.rules: set[tuple[str, str]] | None = None
        self.asked: list[tuple[str, str]] = []
        self.instead: dict[tuple[str, str], list[Any]] = defaultdict(list)
        self.status: Callable[[int], Object | None] = lambda index: None
        self.refused_pods = ""
        self.bodies: dict[str, Object] = {}
        self.lets_all_in = False
        self._kubelet = kubelet
        self._objects: dict[tuple[str, str], Object] = {}
        self._history: list[tuple[int, str, str, Object]] = []
        self._oldest = 0
        self._version = 100
        self._running: dict[str, Any] = {}
        self._deleted: set[str] = set()  # jobs, from the request on: no pod of theirs starts any more
        self._changed = threading.Condition()
        self.closed = threading.Event()
        self.connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.daemon_threads = False
        self._server.state = self  # type: ignore[attr-defined]
        if listener is not None:
            self._server.socket.close()
            self._server.socket = listener
        else:
            self._server.server_bind()
            self._server.server_activate()
        self.address = self._server.socket.getsockname()[:2]
        self._serving = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="api server")
        self._serving.start()

    def kubeconfig(self, path: Path, namespace: str = NAMESPACE) -> Path:
        """Writes a kubeconfig for it."""
        host, port = self.address
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"http://{host}:{port}"}}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
            "contexts": [
                {"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}
            ],
        }
        path.write_text(json.dumps(made), encoding="utf-8")
        return path

    def close(self) -> None:
        """End all containers and connections."""
        self.closed.set()
        with self._changed:
            self._changed.notify_all()
            running = list(self._running.values())
        for each in running:
            self._kubelet.end(each)
        self._server.shutdown()
        self._serving.join(10)
        for connection in self.connections:  # that wait for a next request
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        for thread in self._threads:
            thread.join(10)

    # -- what a test looks at, and does

    def names(self, resource: str) -> list[str]:
        """What there is of a kind."""
        with self._changed:
            return [name for kind, name in self._objects if kind == resource]

    def wait_for(self, what: str, fulfilled: Callable[[], object], deadline_s: float = 30.0) -> None:
        """Waits for something that is so after an object changed or a request came."""
        with self._changed:
            assert self._changed.wait_for(fulfilled, deadline_s), what

    def set_status(self, index: int, status: Object) -> None:
        """Something becomes of a pod."""
        with self._changed:
            pod = self._pod(index)
            pod["status"] = {**pod.get("status", {}), **status}
            self._record("MODIFIED", "pods", pod)
        if status.get("phase") == "Failed":
            self._kill_pod(pod["metadata"]["name"])
            self._fail_job()

    def delete_pod(self, index: int) -> None:
        """A pod is taken away."""
        with self._changed:
            name = self._pod(index)["metadata"]["name"]
        self._delete_pod(name)

    def admit(self) -> None:
        """A queue lets the Job begin."""
        (name,) = self.names("jobs")
        self._patch("jobs", name, {"spec": {"suspend": False}})

    def forget_history(self) -> None:
        """What was before is too old for watches, and those that run are cut off."""
        with self._changed:
            self._version += 1
            self._oldest = self._version
            self._history.clear()
            self._changed.notify_all()

    # -- requests

    def handle(self, verb: str, resource: str, name: str, query: Mapping[str, str], body: Object) -> Answer:
        """One request but a watch."""
        if verb == "create":
            return self._create(resource, body)
        if verb == "list":
            with self._changed:
                items = [copy.deepcopy(each) for (kind, _), each in self._objects.items() if kind == resource]
                meta = {"resourceVersion": str(self._version)}
            kind = f"{KINDS[resource]}List"
            return 200, {}, {"kind": kind, "metadata": meta, "items": chosen(items, query)}
        with self._changed:
            found = copy.deepcopy(self._objects.get((resource, name)))
        if found is None:
            return status(404, "NotFound", f'{resource}.{GROUPS.get(resource, "")} "{name}" not found')
        if verb == "patch":
            return 200, {}, self._patch(resource, name, body)
        if verb == "delete":
            self._start(self._delete_job, name)
        return 200, {}, found

    def watch(self, resource: str, query: Mapping[str, str]) -> Iterator[Object]:
        """Events from a version on, until the window is over."""
        version = int(query.get("resourceVersion") or 0)
        until = time.monotonic() + float(query.get("timeoutSeconds", "30"))
        while not self.closed.is_set():
            with self._changed:
                if version < self._oldest:
                    _, _, gone = status(410, "Expired", "too old resource version")
                    yield {"type": "ERROR", "object": gone}
                    return
                new = [each for each in self._history if each[0] > version and each[1] == resource]
                left_s = until - time.monotonic()
                if not new:
                    if left_s <= 0:
                        break
                    self._changed.wait(left_s)
                    continue
            for number, _, kind, made in new:
                version = number
                if chosen([made], query):
                    yield {"type": kind, "object": made}
        mark = {"kind": KINDS[resource], "metadata": {"resourceVersion": str(version)}}
        yield {"type": "BOOKMARK", "object": mark}

    def note(self, verb: str, resource: str) -> Any:
        """Remember a request; what it gets instead of an answer, if anything."""
        with self._changed:
            self.asked.append((verb, resource))
            self._changed.notify_all()
            if self.rules is not None and (verb, resource) not in self.rules:
                return status(403, "Forbidden", forbidden(verb, resource))
            waiting = self.instead[verb, resource]
            return waiting.pop(0) if waiting else None

    # -- what becomes of objects

    def _record(self, kind: str, resource: str, made: Object) -> None:
        """With the lock held."""
        self._version += 1
        made["metadata"]["resourceVersion"] = str(self._version)
        self._history.append((self._version, resource, kind, copy.deepcopy(made)))
        self._changed.notify_all()

    def _create(self, resource: str, body: Object) -> Answer:
        with self._changed:
            name = body["metadata"]["name"]
            if (resource, name) in self._objects:
                return status(409, "AlreadyExists", f'{resource} "{name}" already exists')
            made = copy.deepcopy(body)
            self._version += 1
            made["metadata"] |= {"uid": f"uid-{self._version}", "namespace": NAMESPACE}
            self.bodies[resource] = copy.deepcopy(body)
            self._objects[resource, name] = made
            self._record("ADDED", resource, made)
            answer = copy.deepcopy(made)
        if resource == "jobs" and not made["spec"].get("suspend"):
            self._start(self._begin_job, name)
        return 201, {}, answer

    def _patch(self, resource: str, name: str, body: Object) -> Object:
        with self._changed:
            made = self._objects[resource, name]
            was = made["spec"].get("suspend")
            made["spec"] |= body["spec"]
            self._record("MODIFIED", resource, made)
            answer = copy.deepcopy(made)
        if was and not made["spec"].get("suspend"):
            self._start(self._begin_job, name)
        return answer

    def _start(self, work: Callable[[str], None], name: str) -> None:
        thread = threading.Thread(target=work, args=(name,), name="controller")
        self._threads.append(thread)
        thread.start()

    def _begin_job(self, name: str) -> None:
        with self._changed:
            job = copy.deepcopy(self._objects[("jobs", name)])
        if self.refused_pods:
            event = {"kind": "Event", "metadata": {"name": f"{name}.1"}, "type": "Warning"}
            event |= {"reason": "FailedCreate", "message": self.refused_pods}
            event |= {"involvedObject": {"kind": "Job", "name": name}}
            with self._changed:
                self._objects["events", f"{name}.1"] = event
            return
        for index in range(job["spec"]["completions"]):
            self._begin_pod(job, index)

    def _begin_pod(self, job: Object, index: int) -> None:
        name = job["metadata"]["name"]
        template = copy.deepcopy(job["spec"]["template"])
        pod = {"kind": "Pod", "spec": template["spec"], "status": {"phase": "Pending"}}
        pod["metadata"] = {
            **template["metadata"],
            "name": f"{name}-{index}-x{index}y",
            "annotations": {INDEX: str(index)},
        }
        given = self.status(index)
        with self._changed:
            if job["metadata"]["uid"] in self._deleted:
                return
            self._objects["pods", pod["metadata"]["name"]] = pod
            self._record("ADDED", "pods", pod)
            if given is not None:
                pod["status"] = given
                self._record("MODIFIED", "pods", pod)
                return
            (container,) = pod["spec"]["containers"]
            env = {"JOB_COMPLETION_INDEX": str(index)}
            for variable in container["env"]:
                wanted = variable.get("valueFrom", {}).get("secretKeyRef")
                if wanted and ("secrets", wanted["name"]) not in self._objects:  # deleted, as is the job
                    del self._objects["pods", pod["metadata"]["name"]]
                    self._record("DELETED", "pods", pod)
                    return
                secret = self._objects["secrets", wanted["name"]]["stringData"] if wanted else {}
                env[variable["name"]] = secret[wanted["key"]] if wanted else variable["value"]
            if self.closed.is_set():
                return
            running = self._kubelet.start(index, f"{name}-{index}", pod, env)
            self._running[pod["metadata"]["name"]] = running
            pod["status"] = {"phase": "Running"}
            self._record("MODIFIED", "pods", pod)
        self._start(self._wait_pod, pod["metadata"]["name"])

    def _wait_pod(self, name: str) -> None:
        with self._changed:
            running = self._running.get(name)
        if running is None:
            return
        code = running.wait()
        with self._changed:
            self._running.pop(name, None)
            pod = self._objects.get(("pods", name))
            if pod is None or pod["status"]["phase"] != "Running":
                return
            state = {
                "exitCode": code if code >= 0 else 128 - code,
                "reason": "Error" if code else "Completed",
            }
            pod["status"] = {
                "phase": "Failed" if code else "Succeeded",
                "containerStatuses": [{"name": "node", "state": {"terminated": state}}],
            }
            self._record("MODIFIED", "pods", pod)
        if code:
            self._fail_job()

    def _fail_job(self) -> None:
        """The first pod that fails ends the others: backoffLimit 0, unless each index has its own."""
        with self._changed:
            if any("backoffLimitPerIndex" in made.get("spec", {}) for made in self._objects.values()):
                return
            for (resource, _), made in self._objects.items():
                if resource == "jobs":
                    condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
                    made["status"] = {"conditions": [condition]}
            names = list(self._running)
        for name in names:
            self._kill_pod(name)

    def _delete_pod(self, name: str) -> None:
        with self._changed:
            pod = self._objects.get(("pods", name))
            if pod is None:
                return
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._record("MODIFIED", "pods", pod)
        self._kill_pod(name)
        self._remove("pods", name)

    def _kill_pod(self, name: str) -> None:
        with self._changed:
            running = self._running.pop(name, None)
        if running is not None:
            self._kubelet.end(running)

    def _delete_job(self, name: str) -> None:
        """With all that it owns: the pods, and what names it as its owner."""
        with self._changed:
            self._deleted.update(
                made["metadata"]["uid"] for key, made in self._objects.items() if key == ("jobs", name)
            )
        for pod in self.names("pods"):
            self._delete_pod(pod)
        with self._changed:
            job = self._objects.get(("jobs", name))
            if job is None:
                return
            uid = job["metadata"]["uid"]
            owned = [
                key
                for key, made in self._objects.items()
                if any(owner["uid"] == uid for owner in made["metadata"].get("ownerReferences", ()))
            ]
        for resource, each in [*owned, ("jobs", name)]:
            self._remove(resource, each)

    def _remove(self, resource: str, name: str) -> None:
        with self._changed:
            made = self._objects.pop((resource, name), None)
            if made is not None:
                self._record("DELETED", resource, made)

    def _pod(self, index: int) -> Object:
        """With the lock held."""
        return next(
            made
            for (resource, _), made in self._objects.items()
            if resource == "pods" and made["metadata"]["annotations"][INDEX] == str(index)
        )
