# SPDX-License-Identifier: Apache-2.0
"""distributed_lookup_table: rows of a table whose slices parameter servers hold, fetched for the ids of a batch."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import lod_of, plain, with_lod
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.remote import Remote
from paddle.ops.rows.send_recv import connected


def _infer(ids: list[Spec], w: Spec) -> tuple[list[Spec], Spec]:
    return [Spec((*each.shape[:-1], w.shape[1]), w.dtype, each.lod_level) for each in ids], w


@operator(
    "distributed_lookup_table",
    "Ids*+ W -> Outputs*+ WOut?",
    attrs={
        "table_names": (),
        "height_sections": (),
        "endpoints": (),
        "trainer_id": 0,
        "padding_idx": -1,
    },
    infer=_infer,
    in_place={"WOut": "W"},
)
def distributed_lookup_table(
    ids: list[Any],
    w: Array,
    *,
    table_names: tuple[str, ...],
    height_sections: tuple[int, ...],
    endpoints: tuple[str, ...],
    padding_idx: int,
    remote: Remote | None,
) -> tuple[list[Any], Array]:
    """Return the rows of each Ids; rows of padding_idx are zero (-1: there is none).

    Every row is fetched once. What is fetched also replaces W's rows, which are of earlier steps.

    Raises:
        InputError: an id is beyond the table.
    """
    servers = connected("distributed_lookup_table", remote)
    xp = array_module(w)
    flat = [plain(each).reshape(-1) for each in ids]
    wanted = xp.unique(xp.concatenate(flat))
    if padding_idx != -1:
        wanted = wanted[wanted != padding_idx]
    if len(wanted) and not 0 <= int(wanted[0]) <= int(wanted[-1]) < w.shape[0]:
        wrong = int(wanted[0]) if int(wanted[0]) < 0 else int(wanted[-1])
        raise InputError(f"id {wrong} is not in [0, {w.shape[0]}), the rows of the table")
    ends = list(accumulate(height_sections))
    parts, asked = [], []
    for at, (end, height) in enumerate(zip(ends, height_sections, strict=True)):
        mine = wanted[(wanted >= end - height) & (wanted < end)]
        if len(mine):
            parts.append(mine - (end - height))
            asked.append(at)
    found = servers.lookup([table_names[at] for at in asked], parts, [endpoints[at] for at in asked])
    for rows, part, at in zip(found, parts, asked, strict=True):
        w[part + (ends[at] - height_sections[at])] = xp.asarray(rows)
    outputs = []
    for each, chosen in zip(ids, flat, strict=True):
        out = w.take(chosen, axis=0)
        if padding_idx != -1:
            out[chosen == padding_idx] = 0
        out = out.reshape(*plain(each).shape[:-1], w.shape[1])
        outputs.append(with_lod(out, lod_of(each)))
    return outputs, w
