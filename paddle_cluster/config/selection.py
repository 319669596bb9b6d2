# SPDX-License-Identifier: Apache-2.0
"""The hosts of a source, and how to select some: by entry, by host name or by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from paddle_cluster.config.hosts import Host
from paddle_cluster.config.spelling import nearest
from paddle_cluster.config.values import ValueMismatchError, mismatch
from paddle_cluster.record import dataclass
from paddle_cluster.text.sizes import some

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
        is_requested: the nodes must be requested from the engine; until then these are placeholders.
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

    def ids(self, reference: str) -> Sequence[int]:
        """Ids of the nodes with this text in the list, or else with this name."""
        return self._ids.get(reference, ())

    def node_of(self, reference: str | int) -> int:
        """The id of the node that is meant: by its text, by its name where one host has it, or by its index.

        Raises:
            ValueMismatchError: it names no node, or several.
        """
        if isinstance(reference, int):
            if not 0 <= reference < len(self.hosts):
                raise mismatch(f"an index into {self.called}, from 0 to {len(self.hosts) - 1}", reference)
            return reference
        ids = self.ids(reference)
        if len(ids) > 1:
            raise ValueMismatchError(
                f"{reference!r} is several entries of {self.called}; give the index of the one you mean"
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
