# SPDX-License-Identifier: Apache-2.0
"""Nodes as users name them: by an entry of HOSTS, by a host's name, or by the index."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.config.hosts import Host
from launcher.config.spelling import nearest
from launcher.config.values import ValueMismatchError, mismatch

_SHOWN = 5


def node_of(reference: str | int, hosts: Sequence[Host]) -> int:
    """The id of the node that is meant: by its text in HOSTS, by its name where one host has it, or by its index.

    Raises:
        ValueMismatchError: it names no node, or several.
    """
    if isinstance(reference, int):
        if not 0 <= reference < len(hosts):
            raise mismatch(f"an index into HOSTS, from 0 to {len(hosts) - 1}", reference)
        return reference
    texts = [host.text for host in hosts]
    if texts.count(reference) > 1:
        raise ValueMismatchError(
            f"{reference!r} is several entries of HOSTS; give the index of the one you mean"
        )
    named = [node_id for node_id, host in enumerate(hosts) if host.name == reference]
    if reference not in texts and len(named) == 1:
        return named[0]
    if reference not in texts:
        near = nearest(reference, [*texts, *(host.name for host in hosts)])
        hint = f"; did you mean {near!r}?" if near else f", which has {_listed(texts)}"
        raise ValueMismatchError(f"{reference!r} is not in HOSTS{hint}")
    return texts.index(reference)


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_SHOWN])
    return shown if len(texts) <= _SHOWN else f"{shown} and {len(texts) - _SHOWN} more"
