# SPDX-License-Identifier: Apache-2.0
"""Collective operations among a job's ranks, without parameter servers: all-reduce, broadcast, gather and barrier.

    with collective.connect(collective.Membership.of_environment()) as group:
        group.all_reduce(gradients)

Submodules are imported on the first use of their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle import later

if TYPE_CHECKING:
    from paddle.collective.averages import Averages
    from paddle.collective.errors import CollectiveError, PeerDiffers, PeerLate, PeerLost
    from paddle.collective.group import Group, connect, connect_group
    from paddle.collective.membership import Membership
    from paddle.collective.ranks import Ranks

__all__ = [
    "Averages", "CollectiveError", "Group", "Membership", "PeerDiffers", "PeerLate", "PeerLost", "Ranks",
    "connect", "connect_group",
]  # fmt: skip

__getattr__, __dir__ = later.attributes(
    __name__,
    {
        "paddle.collective.averages": "Averages",
        "paddle.collective.errors": "CollectiveError PeerDiffers PeerLate PeerLost",
        "paddle.collective.group": "Group connect connect_group",
        "paddle.collective.membership": "Membership",
        "paddle.collective.ranks": "Ranks",
    },
)
