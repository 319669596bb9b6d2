# SPDX-License-Identifier: Apache-2.0
"""Puts renames that happened together into an order in which none overwrites what another still has to move."""

from __future__ import annotations

from typing import Dict, List, Tuple


def in_order(moves: Dict[str, str]) -> List[Tuple[str, str]]:
    """Renames (from, to), the end of each chain first; files that changed places among each other are left out."""
    rest = dict(moves)
    ordered = []
    while rest:
        free = [path for path, to in rest.items() if to not in rest]
        if not free:
            break
        for path in free:
            ordered.append((path, rest.pop(path)))
    return ordered
