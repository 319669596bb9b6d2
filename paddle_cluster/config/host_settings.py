# SPDX-License-Identifier: Apache-2.0
"""Parses HOST_SETTINGS, the settings of single hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paddle_cluster.config import values
from paddle_cluster.config.hosts import HostList
from paddle_cluster.config.values import ValueMismatchError, mismatch, nearest, show
from paddle_node.contract.classes import dataclass, field, replace


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """The settings of one host in HOST_SETTINGS.

    Attributes:
        python, root_dir: if empty, the setting for all hosts applies.
        env: variables for the processes on the host; may be secret.
        key: a private key for logins, tried before all others.
        where: the line of the entry, or empty.
    """

    python: str = ""
    root_dir: str = ""
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    key: Path | None = None
    where: str = ""


Given = tuple[tuple[str | int, HostSettings], ...]
"""The hosts in HOST_SETTINGS and the settings of each."""


def variables(value: object) -> tuple[tuple[str, str], ...]:
    """Validate a dictionary of environment variables and return its items; messages never contain a value.

    Raises:
        ValueMismatchError: the value is not a dictionary of strings, or a name is not a valid variable.
    """
    if not isinstance(value, dict):
        raise mismatch("a dictionary of variables, such as {'NAME': 'value'}", value)
    for name, text in value.items():
        if not isinstance(name, str) or values.VARIABLE.fullmatch(name) is None:
            raise mismatch("a name of letters, digits and _ that does not start with a digit", name)
        if not isinstance(text, str) or "\0" in text:
            raise ValueMismatchError(f"{name}: expected a string, got a value of type {type(text).__name__}")
    return tuple(value.items())


SETTINGS: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {"python": values.python, "root_dir": values.root_dir, "env": variables, "key": values.local_file}
)
"""Name of a setting of one host -> the function that parses it."""


def read(value: object) -> Given:
    """Parse HOST_SETTINGS: a dictionary from hosts to dictionaries of the names in SETTINGS.

    Raises:
        ValueMismatchError: the value has a different form; the error names the entry.
    """
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
            near = nearest(name.lower(), tuple(SETTINGS)) if isinstance(name, str) else None
            hint = f"did you mean {near!r}?" if near else f"the settings of a host are {_listed()}"
            raise ValueMismatchError(f"unknown setting {name!r:.80}; {hint}")
        try:
            found[name] = reader(value)
        except ValueMismatchError as error:
            raise ValueMismatchError(f"{name}: {error}") from None
    return HostSettings(**found)


def of_nodes(
    given: Given, listed: HostList, where: Callable[[int], str], others_are_known: bool
) -> dict[int, HostSettings]:
    """Match the entries of HOST_SETTINGS with the listed hosts, and return the settings by node ID.

    Args:
        where: `file:line` of the entry with this index.
        others_are_known: whether the hosts come from somewhere other than HOSTS: entries for other hosts are then
            ignored, and a number would refer to the wrong host.

    Raises:
        ValueMismatchError: an entry matches no host, several hosts, or a host that another entry names, too.
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
                raise ValueMismatchError(f"node {node_id} is already listed")
            if settings.key is not None and hosts[node_id].is_local:
                raise ValueMismatchError("key: an embedded node needs no login; remove it")
        except ValueMismatchError as error:
            raise _at(error, index, reference) from None
        found[node_id] = replace(settings, where=where(index))
    return found


def _at(error: ValueMismatchError, index: int, reference: object) -> ValueMismatchError:
    located = ValueMismatchError(str(error))
    located.index, located.element = index, show(reference).removeprefix("the string ")
    return located


def _listed() -> str:
    return ", ".join(repr(name) for name in SETTINGS)
