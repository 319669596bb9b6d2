# SPDX-License-Identifier: Apache-2.0
"""HOST_SETTINGS of conf.py: what holds on one host in the place of what holds on all, or besides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paddle_cluster.config import env_file, values
from paddle_cluster.config.hosts import Host
from paddle_cluster.config.selection import HostList
from paddle_cluster.config.spelling import nearest
from paddle_cluster.config.values import ValueMismatchError, mismatch, show
from paddle_cluster.record import dataclass


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """Of one host.

    Attributes:
        python, root_dir: empty: as on all hosts.
        env: variables of the processes there; may be secret.
        key: a private key to log in with, before all others.
        where: the line that says so, or empty.
    """

    python: str = ""
    root_dir: str = ""
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    key: Path | None = None
    where: str = ""


Given = tuple[tuple[str | int, HostSettings], ...]
"""Hosts as HOST_SETTINGS names them, and what it says of each."""


def variables(value: object) -> tuple[tuple[str, str], ...]:
    """A dictionary of environment variables; no message holds a value."""
    if not isinstance(value, dict):
        raise mismatch("a dictionary of variables, such as {'NAME': 'value'}", value)
    for name, text in value.items():
        if not isinstance(name, str) or env_file.NAME.fullmatch(name) is None:
            raise mismatch("a name of letters, digits and _", name)
        if not isinstance(text, str) or "\0" in text:
            raise ValueMismatchError(f"{name}: expected a text, got a value of type {type(text).__name__}")
    return tuple(value.items())


SETTINGS: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {"python": values.python, "root_dir": values.root_dir, "env": variables, "key": values.local_file}
)
"""What may be said of a host, and what reads it."""


def read(value: object) -> Given:
    """A dictionary from hosts to dictionaries of SETTINGS."""
    if not isinstance(value, dict):
        raise mismatch("a dictionary such as {'node-b': {'python': '/opt/py311/bin/python'}}", value)
    given = []
    for index, (reference, settings) in enumerate(value.items()):
        try:
            given.append((values.node_reference(reference), _read_one(settings)))
        except ValueMismatchError as error:
            raise _at(error, index, reference) from None
    return tuple(given)


def _read_one(settings: object) -> HostSettings:
    if not isinstance(settings, dict):
        raise mismatch(f"a dictionary with {_listed()}", settings)
    found = {}
    for name, value in settings.items():
        reader = SETTINGS.get(name) if isinstance(name, str) else None
        if reader is None:
            near = nearest(name, tuple(SETTINGS)) if isinstance(name, str) else None
            hint = f"did you mean {near!r}?" if near else f"a host has {_listed()}"
            raise ValueMismatchError(f"unknown setting {name!r:.80}; {hint}")
        try:
            found[name] = reader(value)
        except ValueMismatchError as error:
            raise ValueMismatchError(f"{name}: {error}") from None
    return HostSettings(**found)


def of_nodes(
    given: Given, listed: HostList, where: Callable[[int], str], others_are_known: bool
) -> dict[int, HostSettings]:
    """What is said of hosts, by node id.

    Args:
        where: `file:line` of the entry with this index.
        others_are_known: the hosts do not come from HOSTS: what is said of hosts that are not among them is left
            out, and a number would be that of another host.

    Raises:
        ValueMismatchError: an entry names no host, several, or one that another entry names too.
    """
    found: dict[int, HostSettings] = {}
    hosts = listed.hosts
    for index, (reference, settings) in enumerate(given):
        try:
            if others_are_known and isinstance(reference, int):
                raise ValueMismatchError(
                    "a number is an index into HOSTS, which this job does not use; give the name of the host"
                )
            if others_are_known and not listed.ids(str(reference)):
                continue
            node_id = listed.node_of(reference)
            if node_id in found:
                raise ValueMismatchError(f"it is node {node_id}, which is listed before")
            if settings.key is not None and hosts[node_id].is_local:
                raise ValueMismatchError("key: an embedded node needs no login; remove it")
        except ValueMismatchError as error:
            raise _at(error, index, reference) from None
        found[node_id] = replace(settings, where=where(index))
    return found


def keys(hosts: Sequence[Host], own: Mapping[int, HostSettings]) -> tuple[tuple[str, Path], ...]:
    """(host, private key) of those that have one of their own."""
    return tuple((hosts[node_id].describe(), one.key) for node_id, one in own.items() if one.key is not None)


def _at(error: ValueMismatchError, index: int, reference: object) -> ValueMismatchError:
    located = ValueMismatchError(str(error))
    located.index, located.element = index, show(reference).removeprefix("the string ")
    return located


def _listed() -> str:
    return ", ".join(repr(name) for name in SETTINGS)
