# SPDX-License-Identifier: Apache-2.0
"""Builds a job's Kubernetes objects: an Indexed Job, a Secret and a headless Service.

The Job is created first, suspended. It owns the other two objects, which exist before the first pod starts.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from paddle_cluster.config.settings import KubernetesSettings
from paddle_cluster.engines.callback_agents import AGENT_CODE, INVITATION, CallbackAgent
from paddle_cluster.errors import UsageError
from paddle_cluster.plan.plan import Plan
from paddle_node.contract.classes import NamedTuple, regex

RANK = "JOB_COMPLETION_INDEX"
INDEX = "batch.kubernetes.io/job-completion-index"
CONTAINER = "node"
HOME = "/home/paddle"
KEPT_S = 300  # after the end of a Job whose launcher was killed
GRACE_S = 5
HIDDEN = "***"
_JOB_LABEL = "paddle-cluster/job"
_NAME = "paddle-cluster/name"
_STANDARD_LABELS = {
    "app.kubernetes.io/name": "paddle-cluster",
    "app.kubernetes.io/component": "node",
    "app.kubernetes.io/managed-by": "paddle-cluster",
}
_LEAST = {"cpu": "1", "memory": "1Gi"}  # requested if conf.py does not mention a resource
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_PLAIN = regex(r"[A-Za-z/][A-Za-z0-9_./-]*")
_NO_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})

Object = dict[str, Any]

UNKNOWN = CallbackAgent(("/bin/sh", "-c", HIDDEN), dict.fromkeys((INVITATION, AGENT_CODE), HIDDEN))
"""The placeholder of the callback agent before any connection."""


class Objects(NamedTuple):
    """The Kubernetes objects of a job, in the order in which they are created."""

    job: Object
    secret: Object
    service: Object


def job_name(job_id: str) -> str:
    """Return the name of all three objects; a valid DNS label."""
    return job_id.lower()


def host_name(job_id: str, node_id: int) -> str:
    """Return the host name of the pod that runs a node."""
    return f"{job_name(job_id)}-{node_id}"


def selector(job_id: str) -> str:
    """Return the label selector that matches only this job's pods."""
    return f"{_JOB_LABEL}={job_name(job_id)}"


def render(plan: Plan, callback_agent: CallbackAgent) -> Objects:
    """Build the Kubernetes objects of a plan; the Secret and the Service have no owner yet.

    Raises:
        UsageError: pods could not write to --job_workspace.
    """
    name, settings = job_name(plan.job_id), plan.settings.kubernetes
    labels = {**_STANDARD_LABELS, "app.kubernetes.io/instance": name, _JOB_LABEL: name}
    title = plan.settings.job.name
    meta = {"name": name, "labels": labels, **({"annotations": {_NAME: title}} if title else {})}
    count = len(plan.settings.cluster.hosts)
    queue = {_QUEUE_LABEL: settings.queue} if settings.queue else {}
    return Objects(
        job={
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {**meta, "labels": {**labels, **queue}},
            "spec": {
                "completionMode": "Indexed",
                "completions": count,
                "parallelism": count,
                **_failures(count, plan.settings.job.min_trainers is not None),
                "podReplacementPolicy": "Failed",
                "ttlSecondsAfterFinished": KEPT_S,
                **({"activeDeadlineSeconds": settings.deadline_s} if settings.deadline_s else {}),
                "suspend": True,  # until the other objects exist; with a queue, until it admits the Job
                "template": _template(plan, name, labels, callback_agent),
            },
        },
        secret={
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": meta,
            "type": "Opaque",
            "immutable": True,
            "stringData": dict(callback_agent.env),
        },
        service={
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {_JOB_LABEL: name},
            },
        },
    )


def _failures(count: int, may_lose_pods: bool) -> Object:
    """Return the failure policy, which restarts no pod; with `may_lose_pods`, a failed pod does not end the others."""
    return {"backoffLimitPerIndex": 0, "maxFailedIndexes": count} if may_lose_pods else {"backoffLimit": 0}


def owned(made: Object, job: Mapping[str, Any]) -> Object:
    """Return a copy of the object with the Job as its owner, so that both are deleted together."""
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    }
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [owner]}}


def _template(plan: Plan, name: str, labels: Mapping[str, str], callback_agent: CallbackAgent) -> Object:
    """Return the pod template; K8S_POD overrides all of it, and determines what is still missing."""
    made, given = _made(plan, name, labels, callback_agent), plan.settings.kubernetes.pod
    template: Object = merged(merged(made, _missing(plan, merged(made, given))), given)
    return template


def _made(plan: Plan, name: str, labels: Mapping[str, str], callback_agent: CallbackAgent) -> Object:
    settings = plan.settings.kubernetes
    claims = [
        _Volume(f"claim-{number}", path, {"persistentVolumeClaim": {"claimName": claim}})
        for number, (claim, path) in enumerate(settings.claims.items())
    ]
    spec: Object = {
        "restartPolicy": "Never",
        "subdomain": name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": True,  # otherwise the callback agent would be process 1, which signals do not end
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": _identity(settings.user),
        "containers": [_container(settings, name, callback_agent, claims)],
        "volumes": [{"name": each.name, **each.source} for each in claims],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {_JOB_LABEL: name}},
            }
        ],
    }
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in settings.pull_secrets]
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        spec["tolerations"] = [dict(each) for each in settings.tolerations]
    return {"metadata": {"labels": dict(labels)}, "spec": spec}


class _Volume(NamedTuple):
    name: str
    path: str
    source: Object


def _missing(plan: Plan, template: Object) -> Object:
    """Return what a template merged with K8S_POD lacks.

    These are minimum requests, shared memory and, if conf.py sets a user, volumes for the directories that this user
    must be able to write, except those at or below a path that has a volume.
    """
    settings, containers = plan.settings.kubernetes, _tables(_table(template["spec"]).get("containers"))
    node = next((each for each in containers if each.get("name") == CONTAINER), {})
    home = next(
        (str(each.get("value")) for each in _tables(node.get("env")) if each.get("name") == "HOME"), ""
    )
    home = home if home.startswith("/") else HOME
    taken = [_path(str(each.get("mountPath"))) for each in _tables(node.get("volumeMounts"))]
    deployed = _in_image(plan, home, taken) if settings.user else []
    if deployed and _table(node.get("securityContext")).get("readOnlyRootFilesystem"):
        raise UsageError(
            f"--job_workspace={plan.settings.job.workspace}: pods run as user {settings.user} and cannot write to "
            f"{deployed[0]}, which is in the image; set K8S_USER = 0 in conf.py, or mount a volume there: "
            f"K8S_PVC = {{'CLAIM': '{deployed[0]}'}}"
        )
    wanted = [_Volume("shm", "/dev/shm", {"emptyDir": {"medium": "Memory", "sizeLimit": settings.shm_size}})]  # noqa: S108
    if settings.user:
        paths = {"home": home, "tmp": "/tmp", "root": plan.settings.cluster.root_dir}  # noqa: S108 - of a pod
        wanted += [_Volume(*each, {"emptyDir": {}}) for each in paths.items() if each[1].startswith("/")]
    volumes: list[_Volume] = []
    for volume in wanted:
        path = _path(volume.path)
        is_covered = any(map(path.is_relative_to, taken))
        if not is_covered and not any(each.is_relative_to(path) for each in deployed):
            volumes.append(volume)
            taken.append(path)
    resources = _table(node.get("resources"))
    said = {**_table(resources.get("limits")), **_table(resources.get("requests"))}
    least = {resource: amount for resource, amount in _LEAST.items() if resource not in said}
    container: Object = (
        {"name": CONTAINER, "resources": {"requests": least}} if least else {"name": CONTAINER}
    )
    if settings.user:  # the image's directories may be inaccessible to that user
        container["workingDir"] = home if _path(home) in taken else "/"
    if not volumes:
        return {"spec": {"containers": [container]}}
    container["volumeMounts"] = [{"name": each.name, "mountPath": each.path} for each in volumes]
    named = [{"name": each.name, **each.source} for each in volumes]
    return {"spec": {"containers": [container], "volumes": named}}


def _in_image(plan: Plan, home: str, taken: Sequence[PurePosixPath]) -> list[PurePosixPath]:
    """Return the directories of --job_workspace that are not on a volume."""
    if plan.settings.job.workspace is None:
        return []
    places = {_path(re.sub(r"^~(?=/|$)", lambda _: home, node.job_dir)) for node in plan.nodes}
    return [place for place in sorted(places) if not any(map(place.is_relative_to, taken))]


def _path(text: str) -> PurePosixPath:
    return PurePosixPath(posixpath.normpath(f"/{text.lstrip('/')}"))


def _table(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _tables(value: Any) -> list[Object]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _identity(user: int) -> Object:
    found: Object = {"seccompProfile": {"type": "RuntimeDefault"}}
    if user:
        found |= {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, "fsGroup": user}
        found["fsGroupChangePolicy"] = "OnRootMismatch"  # otherwise each start walks all files of the claims
    return found


def _container(
    settings: KubernetesSettings, name: str, callback_agent: CallbackAgent, volumes: Sequence[_Volume]
) -> Object:
    env: list[Object] = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": variable}}}
        for variable in callback_agent.env
    ]
    if settings.user:
        known = {"HOME": HOME, "USER": "paddle", "LOGNAME": "paddle"}  # the image's passwd may lack them
        env += [{"name": variable, "value": value} for variable, value in known.items()]
    resources = {"requests": dict(settings.requests), "limits": dict(settings.limits)}
    may_write = {"readOnlyRootFilesystem": True} if settings.user else {}
    return {
        "name": CONTAINER,
        "image": settings.image,
        "command": [word.replace("$(", "$$(") for word in callback_agent.argv],
        "env": env,
        "resources": {kind: amounts for kind, amounts in resources.items() if amounts},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            **may_write,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the pod's state then has the last output
        "volumeMounts": [{"name": each.name, "mountPath": each.path} for each in volumes],
    }


def merged(made: Any, given: Any) -> Any:
    """Merge the user's object into ours: dictionaries by key, named list elements by name, mounts by path."""
    if isinstance(made, dict) and isinstance(given, dict):
        return {
            **made,
            **{key: merged(made[key], value) if key in made else value for key, value in given.items()},
        }
    if isinstance(made, list) and isinstance(given, list) and _have_names(made) and _have_names(given):
        found = list(made)
        for each in given:
            at = next((at for at, other in enumerate(found) if _is_same(each, other)), len(found))
            found[at : at + 1] = [merged(found[at] if at < len(found) else {}, each)]
        return found
    return given


def _is_same(element: Object, other: Object) -> bool:
    if "mountPath" in element and "mountPath" in other:
        return _path(str(element["mountPath"])) == _path(str(other["mountPath"]))
    return bool(element["name"] == other["name"])


def _have_names(elements: Sequence[Any]) -> bool:
    return bool(elements) and all(isinstance(each, dict) and "name" in each for each in elements)


def shown(plan: Plan) -> str:
    """Return the objects as YAML before any connection, without secrets and without values that are not known yet."""
    return "".join(f"---\n{_yaml(each)}" for each in render(plan, UNKNOWN))


def _yaml(made: Object) -> str:
    return "".join(f"{line}\n" for line in _lines(made))


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _entry(f"{_scalar(key)}:", each, "  ")
    elif isinstance(value, list) and value:
        for each in value:
            first, *rest = _lines(each)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield head
        yield from (f"{indent}{line}" for line in _lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    """Format a scalar as JSON, which is valid YAML; texts that YAML reads as texts are unquoted."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT:
        return value
    return json.dumps(value, ensure_ascii=True)
