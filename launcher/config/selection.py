# SPDX-License-Identifier: Apache-2.0
"""The hosts of a source, and how to select some: by entry, by host name or by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from launcher.config.hosts import Host
from launcher.config.spelling import nearest
from launcher.config.values import ValueMismatchError, mismatch

_SHOWN = 5


@dataclass(frozen=True)
class HostList:
    """Hosts and their source.

    Attributes:
        lines: place of each host in the source.
        source: the file or option that names them.
        slots: trainers by node id, if given.
        all_hosts: number of hosts including excluded ones; 0: none was excluded.
        ignored: settings of the source that have no effect.
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
        """The name of the list in messages."""
        return "HOSTS" if self.is_conf else f"the nodes of {self.source}"

    @property
    def total(self) -> int:
        """Number of hosts in the source."""
        return self.all_hosts or len(self.hosts)

    def of(self, ids: Sequence[int]) -> HostList:
        """Return a selection of the hosts, renumbered from 0."""
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
    """Return the id of a node, given its entry in the list, its unique host name or its index.

    Args:
        called: the name of the list in messages.

    Raises:
        ValueMismatchError: no node matches, or several do.
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
