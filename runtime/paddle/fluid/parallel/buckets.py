# SPDX-License-Identifier: Apache-2.0
"""Which gradients travel together: buckets in the order in which the backward pass completes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from paddle import graph

BUCKET_BYTES = 4 << 20
"""Large enough that a sum's fixed cost does not count, small enough that much of the pass is left when it starts."""


@dataclass(frozen=True)
class Bucket:
    """Gradients of one sum.

    Attributes:
        names: in the order in which they are computed.
        after: the position of the operator after which all of them are there.
    """

    names: tuple[str, ...]
    after: int


def bucketed(
    ops: Sequence[graph.Operator],
    names: Collection[str],
    nbytes: Mapping[str, int],
    limit: int = BUCKET_BYTES,
) -> list[Bucket]:
    """Return the buckets of some variables.

    Args:
        ops: of the pass.
        names: variables that it computes.
        nbytes: of each of them, as far as it is known.
        limit: a bucket that has as many bytes takes no more.
    """
    last = {name: at for at, op in enumerate(ops) for name in op.output_names if name in names}
    buckets: list[Bucket] = []
    members: list[str] = []
    held = 0
    for name in sorted(last, key=lambda each: (last[each], each)):
        members.append(name)
        held += nbytes.get(name, 0)
        if held >= limit:
            buckets.append(Bucket(tuple(members), last[name]))
            members, held = [], 0
    if members:
        buckets.append(Bucket(tuple(members), last[members[-1]]))
    return buckets
