# SPDX-License-Identifier: Apache-2.0
"""The engine for Kubernetes: a Job with one pod per node. One thread creates, watches and deletes the Job.

The API server may be unavailable while the job runs, because agents have their own connections. The ends of pods are
processed once they become known.
"""

from __future__ import annotations

import random
import textwrap
import threading
import time
from collections.abc import Mapping
from typing import Any

from paddle_cluster.engines import kubernetes_faults as faults
from paddle_cluster.engines import kubernetes_objects
from paddle_cluster.engines.callback_agents import CallbackAgents, CallbackAgentsEnded, Invite
from paddle_cluster.engines.callback_engine import CallbackEngine
from paddle_cluster.engines.kubernetes_api import (
    CONFLICT,
    FORBIDDEN,
    GONE,
    INSTALL,
    NOT_FOUND,
    Api,
    ApiError,
    is_installed,
)
from paddle_cluster.engines.kubernetes_faults import Trouble
from paddle_cluster.engines.kubernetes_objects import RANK, host_name, job_name, owned, render, selector
from paddle_cluster.errors import UsageError
from paddle_cluster.plan.plan import Plan

START_WINDOW_S, WINDOW_S = (
    2.0,
    5.0,
)  # of a watch: until all pods were up, and afterwards; the Job is checked after each
GONE_S = 25.0  # for the Job and its pods to be deleted
CLOSE_S = 40.0
LOOK_S = 0.3
SHOWN = 600


class KubernetesEngine(CallbackEngine):
    """The engine for Kubernetes: creates a Job whose pods connect to the launcher."""

    @classmethod
    def described(cls, text: str, plan: Plan) -> str:
        """Return the plan as a comment, followed by the job's objects as YAML."""
        return textwrap.indent(text, "# ", lambda line: True) + kubernetes_objects.shown(plan)

    def callback_agents(self) -> CallbackAgents:
        """Return the Kubernetes Job that starts the callback agents.

        Raises UsageError if the official client is missing.
        """
        if not is_installed():
            raise UsageError(
                f"--engine=kubernetes needs the Kubernetes client for Python, which is not installed; run {INSTALL}"
            )
        kubernetes_objects.render(self._plan, kubernetes_objects.UNKNOWN)  # rejects what could not run
        return KubernetesJob(self._plan)


ENGINE = KubernetesEngine


class KubernetesJob:
    """A Kubernetes Job with one pod per node of a plan, as a starter of callback agents."""

    name = "Kubernetes"

    def __init__(self, plan: Plan) -> None:
        count = len(plan.settings.cluster.hosts)
        self.hosts = tuple(host_name(plan.job_id, node_id) for node_id in range(count))
        self.start_s = plan.settings.kubernetes.start_timeout_s
        self._plan = plan
        self._job = job_name(plan.job_id)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._api: Api | None = None
        self._may_be_there = False  # the Job
        self._left = ""
        self._ended: CallbackAgentsEnded
        self._were_up = False  # all pods, at one time
        self._pods: dict[str, Mapping[str, Any]] = {}  # by name, in the last observed state
        self._lost: set[int] = set()  # nodes whose pods are permanently lost
        self._troubles: dict[str, str] = {}  # by pod, Job, or API server: problems that may be temporary

    def start(self, invite: Invite, ended: CallbackAgentsEnded) -> None:
        """Create the Job in a thread, which later reports its end."""
        self._thread = threading.Thread(
            target=self._run, args=(invite, ended), name="kubernetes", daemon=True
        )
        self._thread.start()

    def status_line(self) -> str:
        """Return the known reasons why pods are not running yet, on one line."""
        return "; ".join(self._troubles.copy().values())[:SHOWN]

    def close(self) -> str:
        """Delete the Job and its dependents; wait until it is deleted."""
        self._stopping.set()
        if self._thread is None:
            return ""
        if self._api is not None:
            self._api.interrupt()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            return f"cannot delete the Job {self._job}: the API server does not answer. Its pods will end on their own"
        return self._left

    def _run(self, invite: Invite, ended: CallbackAgentsEnded) -> None:
        self._ended = ended
        try:
            self._api = Api(self._plan.settings.kubernetes, self._stopping)
            self._make(self._api, invite)
            why = self._watch(self._api)
        except ApiError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - a thread's end must be told, whatever ended it
            why = f"{type(error).__name__}: {error}"
        if not self._stopping.is_set():
            ended(why)
        if self._api is not None:
            if self._may_be_there:
                self._delete(self._api)
            self._api.close()

    def _make(self, api: Api, invite: Invite) -> None:
        """Create the Job, then the objects that it owns, then unsuspend it.

        Raises:
            ApiError: one of them cannot be created.
        """
        settings = self._plan.settings.kubernetes
        callback_agent = invite([api.host], [RANK])
        job, secret, service = render(self._plan, callback_agent)
        self._may_be_there = True
        made = self._create(api, "jobs", job)
        for resource, each in (("secrets", secret), ("services", service)):
            self._create(api, resource, owned(each, made))
        if not settings.queue:  # the queue unsuspends it
            api.call("patch", "jobs", self._job, {"spec": {"suspend": False}})

    def _create(self, api: Api, resource: str, body: dict[str, Any]) -> Mapping[str, Any]:
        try:
            return api.call("create", resource, body=body)
        except ApiError as error:
            if error.status != CONFLICT or not error.may_be_done:
                self._may_be_there &= resource != "jobs" or error.may_be_done
                raise
        # the answer to an earlier attempt was lost, and the object is ours: the job's name is unknown to others
        return api.call("get", resource, self._job) if resource == "jobs" else body

    def _watch(self, api: Api) -> str:
        """Watch the pods until the job ends; return the problem that ended it, if any.

        Raises:
            ApiError: watching is forbidden, and not all pods have been up yet.
        """
        version, failures = "", 0
        while not self._stopping.is_set():
            try:
                trouble, version = (None, version) if version else self._list(api)
                if trouble is None:
                    trouble, version = self._follow(api, version)
                if trouble is None:
                    trouble = self._check_job(api)
                if trouble is not None:
                    return trouble
                failures = 0
                self._troubles.pop("api", None)
            except ApiError as error:
                if error.status == FORBIDDEN and not self._were_up:
                    raise
                version = ""  # some changes were missed, or the version is too old (410): list again
                self._troubles["api"] = str(error)
                failures += error.status != GONE
                pause_s = min(WINDOW_S, 0.1 * 2 ** min(failures, 9)) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
                self._stopping.wait(max(error.wait_s, pause_s))
        return "the watch was stopped"

    def _follow(self, api: Api, version: str) -> tuple[str | None, str]:
        """Watch the pods for a while; return a final problem, and the version to continue from."""
        window_s = WINDOW_S if self._were_up else START_WINDOW_S
        for event in api.watch("pods", {**self._mine(), "resourceVersion": version}, window_s):
            version = str(event["object"]["metadata"]["resourceVersion"])
            trouble = self._update_pod(event["type"], event["object"])
            if trouble is not None:
                return trouble, version
        return None, version

    def _mine(self) -> dict[str, str]:
        return {"labelSelector": selector(self._plan.job_id)}

    def _list(self, api: Api) -> tuple[str | None, str]:
        """List all pods; return a final problem, and the version to watch from."""
        listed = api.call("list", "pods", query=self._mine())
        pods = {pod["metadata"]["name"]: pod for pod in listed.get("items") or ()}
        missing = [pod for name, pod in self._pods.items() if name not in pods]
        troubles = [self._update_pod("DELETED", pod) for pod in missing]
        troubles += [self._update_pod("ADDED", pod) for pod in pods.values()]
        return next(filter(None, troubles), None), str(listed["metadata"]["resourceVersion"])

    def _update_pod(self, kind: str, pod: Mapping[str, Any]) -> str | None:
        """Process the state of a pod; return a final problem."""
        if kind not in ("ADDED", "MODIFIED", "DELETED"):  # such as a bookmark
            return None
        name, rank = pod["metadata"]["name"], faults.rank_of(pod)
        if rank in self._lost:
            return None
        self._pods[name] = pod
        self._were_up = self._were_up or sum(map(faults.is_up, self._pods.values())) >= len(self.hosts)
        trouble = self._note(name, faults.gone(pod) if kind == "DELETED" else faults.of_pod(pod))
        if trouble is None or not self._may_lose(rank):
            return trouble
        self._lost.add(rank)
        del self._pods[name]
        self._ended(trouble, rank)
        return None

    def _may_lose(self, rank: int) -> bool:
        """Return whether the job can continue without a pod; during the start, all pods are needed."""
        goes_on = self._plan.settings.job.min_trainers is not None
        return goes_on and self._were_up and rank >= 0 and len(self._lost) + 1 < len(self.hosts)

    def _note(self, what: str, trouble: Trouble | None) -> str | None:
        if trouble is None:
            self._troubles.pop(what, None)
            return None
        earlier = self._troubles.get(what, "")
        if trouble.is_final:  # it may be less specific than the one before: "Back-off pulling image"
            return trouble.text + (f" ({earlier})" if earlier and earlier not in trouble.text else "")
        self._troubles[what] = trouble.text
        return None

    def _check_job(self, api: Api) -> str | None:
        """Check the Job and, while pods are missing, the reasons."""
        try:
            job = api.call("get", "jobs", self._job)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return "the Job was deleted"
            raise
        trouble = faults.of_job(job)
        if trouble is not None and trouble.is_final:  # caused by a pod that has just failed
            return self._list(api)[0] or trouble.text
        if trouble is None and not self._were_up:
            about = f"involvedObject.kind=Job,involvedObject.name={self._job}"
            events = api.call("list", "events", query={"fieldSelector": about})
            trouble = faults.of_events(events.get("items") or ())
        return self._note("job", trouble)

    def _delete(self, api: Api) -> None:
        """Delete the Job and wait until it and its pods are deleted."""
        api.resume()
        deadline = time.monotonic() + GONE_S
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
        try:
            api.call("delete", "jobs", self._job, options, tries_s=GONE_S)
            while time.monotonic() < deadline:
                api.call("get", "jobs", self._job, tries_s=max(1.0, deadline - time.monotonic()))
                time.sleep(LOOK_S)
            self._left = f"the Job {self._job} in namespace {api.namespace} is still being deleted"
        except ApiError as error:
            if error.status != NOT_FOUND:
                self._left = f"cannot delete the Job {self._job}: {error}. Its pods will end on their own"
