# SPDX-License-Identifier: Apache-2.0
"""Lists of hosts with their sources, and the parser of HOST_SETTINGS, the settings of single hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paddle_cluster.config import values
from paddle_cluster.config.hosts import Host
from paddle_cluster.config.values import ValueMismatchError, mismatch, nearest, show
from paddle_cluster.text.sizes import some
from paddle_node.contract.classes import dataclass, field, replace

_SHOWN = 5


@dataclass(frozen=True)
class HostList:
    """A list of hosts, and the file or option that it comes from.

    Attributes:
        lines: location of each host in the source.
        source: the file or option that names them.
        slots: number of trainers by node ID, if given.
        all_hosts: number of hosts including excluded ones; 0 means no host was excluded.
        ignored: settings of the source that have no effect.
        is_conf: whether the source is HOSTS of conf.py.
        is_requested: whether the nodes must be requested from the engine; until then, the hosts are placeholders.
    """

    hosts: tuple[Host, ...]
    lines: tuple[str, ...]
    source: str
    slots: Mapping[int, int] = field(default_factory=dict)
    all_hosts: int = 0
    ignored: tuple[str, ...] = ()
    is_conf: bool = False
    is_requested: bool = False

    @property
    def called(self) -> str:
        """Return the name of the list for messages, such as "HOSTS"."""
        return "HOSTS" if self.is_conf else f"the nodes of {self.source}"

    @property
    def total(self) -> int:
        """Return the number of hosts in the source."""
        return self.all_hosts or len(self.hosts)

    def of(self, ids: Sequence[int]) -> HostList:
        """Return the hosts with these IDs as a list, renumbered from 0."""
        if len(ids) == len(self.hosts):
            return self
        return replace(
            self,
            hosts=tuple(self.hosts[one] for one in ids),
            lines=tuple(self.lines[one] for one in ids),
            slots={new: self.slots[one] for new, one in enumerate(ids) if one in self.slots},
            all_hosts=self.total,
        )

    def ids(self, reference: str) -> Sequence[int]:
        """Return the IDs of the nodes whose entry in the list is `reference`, or else of those with this host name."""
        return self._ids.get(reference, ())

    def node_of(self, reference: str | int) -> int:
        """Return the ID of the node that is given as written in the list, by its unique host name, or by its index.

        Raises:
            ValueMismatchError: the reference matches no node, or several.
        """
        if isinstance(reference, int):
            if not 0 <= reference < len(self.hosts):
                raise mismatch(f"an index into {self.called}, from 0 to {len(self.hosts) - 1}", reference)
            return reference
        ids = self.ids(reference)
        if len(ids) > 1:
            raise ValueMismatchError(
                f"{reference!r} matches several entries of {self.called}; give the index of the one you mean"
            )
        if not ids:
            texts = [host.text for host in self.hosts]
            near = nearest(reference, [*texts, *(host.name for host in self.hosts)])
            hint = f"; did you mean {near!r}?" if near else f", which has {some(texts, _SHOWN)}"
            raise ValueMismatchError(f"{reference!r} is not in {self.called}{hint}")
        return ids[0]

    @cached_property
    def _ids(self) -> Mapping[str, Sequence[int]]:
        texts, names = dict[str, list[int]](), dict[str, list[int]]()
        for node_id, host in enumerate(self.hosts):
            texts.setdefault(host.text, []).append(node_id)
            names.setdefault(host.name, []).append(node_id)
        return names | texts


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
            near = nearest(name, tuple(SETTINGS)) if isinstance(name, str) else None
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


def keys(hosts: Sequence[Host], own: Mapping[int, HostSettings]) -> tuple[tuple[str, Path], ...]:
    """Return (host, private key) for each host that has its own key."""
    return tuple((hosts[node_id].describe(), one.key) for node_id, one in own.items() if one.key is not None)


def _at(error: ValueMismatchError, index: int, reference: object) -> ValueMismatchError:
    located = ValueMismatchError(str(error))
    located.index, located.element = index, show(reference).removeprefix("the string ")
    return located


def _listed() -> str:
    return ", ".join(repr(name) for name in SETTINGS)
