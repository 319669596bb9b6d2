# SPDX-License-Identifier: Apache-2.0
"""Validators of the names of conf.py that begin with K8S_; each returns the value or raises ValueMismatchError."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_cluster.config import values
from paddle_node.contract.classes import regex

_DEEPEST = 32
_QUANTITY = regex(r"[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]+)?")
_MOUNT = regex(r"(/(?!\.{1,2}(/|$))[^/:]+)+")
_LABEL = regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def dictionary(read: Callable[[object], Any], what: str) -> Callable[[object], dict[str, Any]]:
    """Return a validator of dictionaries that map non-empty strings to values that `read` accepts."""

    def read_all(value: object) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(name, str) and name for name in value):
            raise values.mismatch(f"a dictionary of {what}", value)
        return {name: read(each) for name, each in value.items()}

    return read_all


def quantity(value: object) -> str:
    """Validate a resource quantity in Kubernetes notation."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not _QUANTITY.fullmatch(text):
        raise values.mismatch("an amount such as 2, '500m' or '8Gi'", value)
    return text


def amounts(example: str) -> Callable[[object], dict[str, Any]]:
    """Return a validator of dictionaries that map resources, such as "cpu", to quantities."""
    return dictionary(quantity, f"amounts, such as {example}")


def mount_path(value: object) -> str:
    """Validate the path at which a pod mounts a volume."""
    if not isinstance(value, str) or not _MOUNT.fullmatch(value) or not value.isprintable():
        raise values.mismatch(
            "an absolute path in the pod without '..' and without a trailing '/', such as '/data'", value
        )
    return value


def claims(value: object) -> dict[str, Any]:
    """Validate a dictionary of volume claim -> mount path; the mount paths must be distinct."""
    read = dictionary(mount_path, "volume claims and their mount paths, such as {'datasets': '/data'}")(value)
    if len(set(read.values())) < len(read):
        raise values.mismatch("a different mount path for each volume claim", value)
    return read


def template(value: object, depth: int = 0) -> Any:
    """Check that part of a Kubernetes object has a value that JSON can represent; return it."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple) and depth < _DEEPEST:
        return [template(each, depth + 1) for each in value]
    if isinstance(value, dict) and depth < _DEEPEST:
        return {
            name: template(each, depth + 1)
            for name, each in dictionary(lambda each: each, "fields of a Kubernetes object")(value).items()
        }
    raise values.mismatch("dictionaries, lists, strings and numbers, as in a Kubernetes object", value)


def pod(value: object) -> Any:
    """Validate a pod template, or a part of one: a dictionary with `metadata` or `spec`."""
    if not isinstance(value, dict) or not set(value) <= {"metadata", "spec"}:
        raise values.mismatch("a dictionary with 'spec' or 'metadata' of a pod template", value)
    return template(value)


def toleration(value: object) -> Any:
    """Validate a toleration of a pod, which is a dictionary."""
    if not isinstance(value, dict):
        raise values.mismatch("a toleration such as {'key': 'gpu', 'operator': 'Exists'}", value)
    return template(value)


def name(value: object) -> str:
    """Validate a name without whitespace, or an empty string."""
    if not isinstance(value, str) or not value.isprintable() or " " in value or value.startswith("-"):
        raise values.mismatch("a name without spaces", value)
    return value


def label(value: object) -> str:
    """Validate a name in DNS label format, such as a namespace, or an empty string."""
    if not isinstance(value, str) or (value and not _LABEL.fullmatch(value)):
        raise values.mismatch("a name of lower-case letters, digits and '-'", value)
    return value


def kubeconfig(value: object) -> Path | None:
    """Validate the path of a kubeconfig on this machine; an empty value becomes None."""
    return None if value == "" else values.local_file(value)


labels = dictionary(values.text, "labels of nodes, such as {'pool': 'gpu'}")
