# SPDX-License-Identifier: Apache-2.0
"""Explains why a node is missing, from its pod, the Job and their events.

A problem is permanent if only the user can fix it. Other problems are reported when the start times out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddle_cluster.engines.kubernetes_objects import INDEX
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import NamedTuple

SHOWN = 300  # characters of messages from Kubernetes

_WAITS = frozenset({"", "ContainerCreating", "PodInitializing"})
_MAY_PASS = frozenset({"ErrImagePull", "RegistryUnavailable"})
_KILLED = 137

Object = Mapping[str, Any]


class Trouble(NamedTuple):
    """A reason why a node is missing; permanent if only the user can fix it."""

    text: str
    is_final: bool


def node_of(pod: Object) -> str:
    """Return the name of a pod's node, pod-<id>, for messages."""
    meta = pod.get("metadata") or {}
    index = (meta.get("annotations") or {}).get(INDEX) or (meta.get("labels") or {}).get(INDEX)
    return f"pod-{index}" if index is not None else str(meta.get("name", "a pod"))


def rank_of(pod: Object) -> int:
    """Return the ID of the node that a pod runs; -1 if unknown."""
    index = node_of(pod).removeprefix("pod-")
    return int(index) if index.isdigit() else -1


def of_pod(pod: Object) -> Trouble | None:
    """Return the reason why a pod cannot run, if there is one."""
    status = pod.get("status") or {}
    said = _disrupted(status) or _deleted(pod) or _of_phase(status)
    said = said or _of_conditions(status) or _of_containers(status)
    if said is None:
        return None
    return Trouble(f"{node_of(pod)} {said.text}", said.is_final)


def is_up(pod: Object) -> bool:
    """Return whether a pod's container is running."""
    return bool((pod.get("status") or {}).get("phase") == "Running")


def gone(pod: Object) -> Trouble:
    """Return the problem that a pod's deletion causes."""
    return of_pod(pod) or Trouble(f"{node_of(pod)} was deleted", is_final=True)


def _disrupted(status: Object) -> Trouble | None:
    for condition in _true(status, "DisruptionTarget"):
        return Trouble(f"was removed: {_why(condition)}", is_final=True)
    return None


def _deleted(pod: Object) -> Trouble | None:
    is_going = (pod.get("metadata") or {}).get("deletionTimestamp")
    return Trouble("was deleted", is_final=True) if is_going else None


def _of_phase(status: Object) -> Trouble | None:
    phase = status.get("phase")
    if phase not in ("Failed", "Succeeded"):
        return None
    for state in _states(status, "terminated"):
        code, reason = state.get("exitCode"), state.get("reason")
        if reason == "OOMKilled":
            return Trouble(
                "was killed because it ran out of memory (OOMKilled): it needs more than K8S_LIMITS allows",
                True,
            )
        if code:
            how = "was killed (137)" if code == _KILLED else f"ended with status {code}"
            return Trouble(how + _after(state.get("message") or reason), True)
    if phase == "Failed":
        return Trouble(f"failed: {_why(status)}", is_final=True)
    return Trouble("ended before the job did", is_final=True)


def _of_conditions(status: Object) -> Trouble | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Trouble(f"is not scheduled: {_why(condition)}", is_final=False)
        if condition.get("reason") == "NodeLost" or status.get("phase") == "Unknown":
            return Trouble(f"is on a machine that does not respond: {_why(condition)}", is_final=False)
    return None


def _of_containers(status: Object) -> Trouble | None:
    for state in _states(status, "waiting"):
        reason = str(state.get("reason") or "")
        if reason not in _WAITS:
            return Trouble(f"cannot start: {_why(state)}", is_final=reason not in _MAY_PASS)
    return None


def of_job(job: Object) -> Trouble | None:
    """Return the reason why a Job cannot run, if there is one."""
    status = job.get("status") or {}
    for condition in _true(status, "Failed", "FailureTarget"):
        return Trouble(f"the Job failed: {_why(condition)}", is_final=True)
    if (job.get("spec") or {}).get("suspend"):
        return Trouble("the Job is suspended: no queue has admitted it yet", is_final=False)
    return None


def of_events(events: Sequence[Object]) -> Trouble | None:
    """Return why pods could not be created, from a Job's events."""
    for event in events:
        if event.get("type") != "Normal" and event.get("reason") == "FailedCreate":
            text = str(event.get("message") or "")
            refused = "forbidden" in text or "violates" in text
            return Trouble(f"no pod can be created: {_cut(text)}", is_final=refused)
    return None


def _true(status: Object, *kinds: str) -> Iterator[Object]:
    for condition in status.get("conditions") or ():
        if condition.get("type") in kinds and condition.get("status") == "True":
            yield condition


def _states(status: Object, kind: str) -> Iterator[Object]:
    for name in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(name) or ():
            state = (container.get("state") or {}).get(kind)
            if state:
                yield state


def _why(condition: Object) -> str:
    reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
    return _cut(": ".join(filter(None, (reason, message))) or "no reason given")


def _after(text: object) -> str:
    return f": {_cut(str(text))}" if text else ""


def _cut(text: str) -> str:
    return visible(" ".join(text.split())[:SHOWN])
