# SPDX-License-Identifier: Apache-2.0
"""Collective operations without parameter servers: all-reduce, broadcast, gather and barrier among a job's ranks.

    with collective.connect(collective.Membership.of_environment()) as group:
        group.all_reduce(gradients)

Submodules are imported lazily, when one of the names below is first used.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddle.collective.averages import Averages
    from paddle.collective.errors import CollectiveError, PeerDiffers, PeerLate, PeerLost
    from paddle.collective.group import Group, connect, connect_group
    from paddle.collective.membership import Membership
    from paddle.collective.ranks import Ranks

_HOMES = MappingProxyType(
    {
        "Averages": "paddle.collective.averages",
        "CollectiveError": "paddle.collective.errors",
        "Group": "paddle.collective.group",
        "Membership": "paddle.collective.membership",
        "PeerDiffers": "paddle.collective.errors",
        "PeerLate": "paddle.collective.errors",
        "Ranks": "paddle.collective.ranks",
        "PeerLost": "paddle.collective.errors",
        "connect": "paddle.collective.group",
        "connect_group": "paddle.collective.group",
    }
)

__all__ = [
    "Averages",
    "CollectiveError",
    "Group",
    "Membership",
    "PeerDiffers",
    "PeerLate",
    "PeerLost",
    "Ranks",
    "connect",
    "connect_group",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
