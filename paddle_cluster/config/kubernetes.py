# SPDX-License-Identifier: Apache-2.0
"""What conf.py says about pods: names that begin with K8S_, and how many nodes there are with --engine=kubernetes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_cluster.config import values
from paddle_cluster.config.hosts import Host, parse_host
from paddle_cluster.errors import ConfError

MOST_NODES = 100_000
_DEEPEST = 32
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LARGEST_USER = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class KubernetesSettings:
    """Each is a name of conf.py in lower case, after K8S_.

    Attributes:
        namespace: empty: that of the context, or of the pod that the launcher runs in.
        kubeconfig: None: the default ones, or the service account of the pod that the launcher runs in.
        context: of the kubeconfig; empty: its current one.
        requests, limits: of each pod.
        queue: of Kueue, or empty.
        user: who a pod's processes run as; 0: whom the image says.
        pod: merged last into the pods' template.
        address: of this machine as pods see it; empty: by the route to the API server.
        start_timeout_s: from the Job's making until all pods have called.
    """

    image: str
    namespace: str
    kubeconfig: Path | None
    context: str
    requests: Mapping[str, str]
    limits: Mapping[str, str]
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    queue: str
    service_account: str
    user: int
    pod: Mapping[str, Any]
    address: str
    start_timeout_s: float


def pods(count: int, given_hosts: str, image: str, where: str) -> tuple[Host, ...]:
    """The nodes: pod-0, pod-1, ...

    Args:
        count: --nnodes or K8S_NODES; 0: neither.
        given_hosts: where HOSTS is assigned, or empty.
        where: names conf.py in messages.

    Raises:
        ConfError: it is not said how many, or it is said twice, or there is no image.
    """
    if given_hosts:
        raise ConfError(
            given_hosts,
            "HOSTS names machines, and --engine=kubernetes has pods, as many as --nnodes=N or K8S_NODES says; "
            "take HOSTS out, or give another file with --conf=FILE",
        )
    if not count:
        raise ConfError(where, "number of pods unknown: give --nnodes=N, or K8S_NODES in conf.py")
    if not image:
        raise ConfError(
            where,
            "K8S_IMAGE is missing; expected an image with python3, numpy and pyzmq in it, for example "
            "K8S_IMAGE = 'registry.example.org/paddle:1'",
        )
    return tuple(parse_host(f"pod-{index}") for index in range(count))


def settings_of(read: Mapping[str, Any]) -> KubernetesSettings:
    """The names that begin with K8S_, each read already."""
    return KubernetesSettings(
        **{name: read[f"K8S_{name.upper()}"] for name in KubernetesSettings.__dataclass_fields__}
    )


def dictionary(read: Callable[[object], Any], what: str) -> Callable[[object], dict[str, Any]]:
    """A dictionary from texts to what `read` takes."""

    def read_all(value: object) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(name, str) and name for name in value):
            raise values.mismatch(f"a dictionary of {what}", value)
        return {name: read(each) for name, each in value.items()}

    return read_all


def quantity(value: object) -> str:
    """An amount of a resource, as Kubernetes writes it."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not _QUANTITY.fullmatch(text):
        raise values.mismatch("an amount such as 2, '500m' or '8Gi'", value)
    return text


def template(value: object, depth: int = 0) -> Any:
    """What JSON can hold: a part of an object of Kubernetes."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple) and depth < _DEEPEST:
        return [template(each, depth + 1) for each in value]
    if isinstance(value, dict) and depth < _DEEPEST:
        return {
            name: template(each, depth + 1)
            for name, each in dictionary(lambda each: each, "parts of an object of Kubernetes")(value).items()
        }
    raise values.mismatch("dictionaries, lists, texts and numbers, as in an object of Kubernetes", value)


def pod(value: object) -> Any:
    """A pod template, or a part of one."""
    if not isinstance(value, dict) or not set(value) <= {"metadata", "spec"}:
        raise values.mismatch("a dictionary with 'spec' or 'metadata' of a pod template", value)
    return template(value)


def toleration(value: object) -> Any:
    """A toleration of a pod."""
    if not isinstance(value, dict):
        raise values.mismatch("a toleration such as {'key': 'gpu', 'operator': 'Exists'}", value)
    return template(value)


def word(value: object) -> str:
    """A text without blanks, possibly empty."""
    if not isinstance(value, str) or not value.isprintable() or " " in value or value.startswith("-"):
        raise values.mismatch("a name without blanks", value)
    return value


def label(value: object) -> str:
    """The name of a namespace, or of another thing that DNS may know; possibly empty."""
    if not isinstance(value, str) or (value and not _LABEL.fullmatch(value)):
        raise values.mismatch("a name of lower-case letters, digits and '-'", value)
    return value


def kubeconfig(value: object) -> Path | None:
    """A file of this machine, or nothing."""
    return None if value == "" else values.local_file(value)


NAMES: Mapping[str, tuple[object, Callable[[object], Any]]] = {
    "K8S_NODES": (0, values.integer(0, MOST_NODES)),
    "K8S_IMAGE": ("", word),
    "K8S_NAMESPACE": ("", label),
    "K8S_KUBECONFIG": ("", kubeconfig),
    "K8S_CONTEXT": ("", values.text),
    "K8S_REQUESTS": ({}, dictionary(quantity, "amounts, such as {'cpu': 4, 'memory': '8Gi'}")),
    "K8S_LIMITS": ({}, dictionary(quantity, "amounts, such as {'nvidia.com/gpu': 1}")),
    "K8S_NODE_SELECTOR": ({}, dictionary(values.text, "labels of nodes, such as {'pool': 'gpu'}")),
    "K8S_TOLERATIONS": ([], values.list_of(toleration, "tolerations")),
    "K8S_QUEUE": ("", word),
    "K8S_SERVICE_ACCOUNT": ("", word),
    "K8S_USER": (0, values.integer(0, _LARGEST_USER)),
    "K8S_POD": ({}, pod),
    "K8S_ADDRESS": ("", values.own_address),
    "K8S_START_TIMEOUT_S": (600, values.seconds(1, 7 * 86400.0)),
}
"""Name of conf.py -> its default, and what reads it."""
