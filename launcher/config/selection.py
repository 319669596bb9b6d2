# SPDX-License-Identifier: Apache-2.0
"""The hosts that a source names, and which of them are meant: by an entry, by a host's name, or by the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from launcher.config.hosts import Host
from launcher.config.spelling import nearest
from launcher.config.values import ValueMismatchError, mismatch

_SHOWN = 5


@dataclass(frozen=True)
class HostList:
    """Hosts, and who says so.

    Attributes:
        lines: where each is named.
        source: the file or option that names them.
        slots: trainers by node id, where that is said.
        all_hosts: how many there are with those that were left out; 0: none was.
        ignored: what else the source says of hosts, which has no meaning here.
        is_conf: the source is HOSTS of conf.py.
    """

    hosts: tuple[Host, ...]
    lines: tuple[str, ...]
    source: str
    slots: Mapping[int, int] = field(default_factory=dict)
    all_hosts: int = 0
    ignored: tuple[str, ...] = ()
    is_conf: bool = False

    @property
    def called(self) -> str:
        """What messages call the list."""
        return "HOSTS" if self.is_conf else f"the nodes of {self.source}"

    @property
    def total(self) -> int:
        """How many the source names."""
        return self.all_hosts or len(self.hosts)

    def of(self, ids: Sequence[int]) -> HostList:
        """Some of them, numbered anew."""
        if len(ids) == len(self.hosts):
            return self
        return replace(
            self,
            hosts=tuple(self.hosts[one] for one in ids),
            lines=tuple(self.lines[one] for one in ids),
            slots={new: self.slots[one] for new, one in enumerate(ids) if one in self.slots},
            all_hosts=self.total,
        )


def node_of(reference: str | int, hosts: Sequence[Host], called: str) -> int:
    """The id of the node that is meant: by its text in the list, by its name where one host has it, or by its index.

    Args:
        called: what messages call the list.

    Raises:
        ValueMismatchError: it names no node, or several.
    """
    if isinstance(reference, int):
        if not 0 <= reference < len(hosts):
            raise mismatch(f"an index into {called}, from 0 to {len(hosts) - 1}", reference)
        return reference
    texts = [host.text for host in hosts]
    if texts.count(reference) > 1:
        raise ValueMismatchError(
            f"{reference!r} is several entries of {called}; give the index of the one you mean"
        )
    named = [node_id for node_id, host in enumerate(hosts) if host.name == reference]
    if reference not in texts and len(named) == 1:
        return named[0]
    if reference not in texts:
        near = nearest(reference, [*texts, *(host.name for host in hosts)])
        hint = f"; did you mean {near!r}?" if near else f", which has {_listed(texts)}"
        raise ValueMismatchError(f"{reference!r} is not in {called}{hint}")
    return texts.index(reference)


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_SHOWN])
    return shown if len(texts) <= _SHOWN else f"{shown} and {len(texts) - _SHOWN} more"
