# SPDX-License-Identifier: Apache-2.0
"""lookup_table: an embedding lookup, rows of W by id. W is a table, or `SelectedRows` that contain the required rows.

distributed_lookup_table: rows of a table divided among parameter servers, fetched for the ids of a batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.body import Remote
from paddle.ops.base.errors import InputError, RowError, ShapeError
from paddle.ops.base.lod import lod_of, plain, with_lod
from paddle.ops.base.registry import Spec, gradient, lookup, operator
from paddle.ops.base.segments import require_within
from paddle.ops.base.selected_rows import SelectedRows, merge_rows
from paddle.ops.rows.send_recv import connected

_ATTRS = {
    "is_sparse": False,
    "is_distributed": False,
    "padding_idx": -1,
    "grad_inplace": False,
    "remote_prefetch": False,
    "trainer_id": 0,
    "height_sections": (),
    "epmap": (),
    "table_names": (),
}


def _infer(w: Spec, ids: Spec) -> Spec:
    if len(w.shape) != 2 or ids.dtype != np.int64 or not ids.shape or ids.shape[-1] != 1:
        raise ShapeError(
            f"expected W (rows, width) and Ids (..., 1) int64, got {w.shape} and {ids.shape} {ids.dtype}"
            + (
                ": declare the ids with dtype='int64'"
                if ids.dtype != np.int64
                else ": reshape the ids, as in ids.reshape(-1, 1)"
                if len(w.shape) == 2
                else ""
            )
        )
    return Spec((*ids.shape[:-1], w.shape[1]), w.dtype, ids.lod_level)


@operator("lookup_table", "W Ids -> Out", attrs=_ATTRS, infer=_infer, fresh=True)
def lookup_table(w: Any, ids: Array, *, padding_idx: int) -> Array:
    """Look up ids in W; return the rows, (*Ids.shape[:-1], width), zero for padding_idx (-1: no padding_idx)."""
    flat = ids.reshape(-1)
    padding = flat == padding_idx if padding_idx != -1 else None
    if padding is not None and padding.any():
        out = array_module(flat).zeros((len(flat), *w.shape[1:]), w.dtype)
        out[~padding] = _rows(w, flat, ~padding)
    else:
        out = _rows(w, flat)
    return out.reshape(ids.shape[:-1] + w.shape[1:])


@gradient("lookup_table", "W Ids Out@GRAD -> W@GRAD")
def lookup_table_grad(w: Any, ids: Array, dout: Array, *, is_sparse: bool, padding_idx: int) -> Any:
    """Return the gradient of the table, as SelectedRows with unique ascending rows or as a dense array.

    The gradient is sparse if is_sparse is set or W is sparse. The dense gradient omits padding_idx; the sparse one
    includes it.
    """
    xp = array_module(dout)
    flat = ids.reshape(-1)
    values = dout.reshape(len(flat), *w.shape[1:])
    if is_sparse or isinstance(w, SelectedRows):
        return SelectedRows(*merge_rows(flat, values), w.shape[0], is_merged=True)
    if padding_idx != -1:
        kept = flat != padding_idx
        flat, values = flat[kept], values[kept]
    rows, summed = merge_rows(flat, values)
    dense = xp.zeros(w.shape, w.dtype)
    dense[rows] = summed
    return dense


@operator("lookup_tables_grad", "W Ids* Out@GRAD* -> W@GRAD", shares_lod=False)
def lookup_tables_grad(w: Any, ids: list[Array], douts: list[Array]) -> SelectedRows:
    """Return the sum of the sparse gradients of several lookups in one table; occurs only in compiled plans."""
    xp = array_module(douts[0])
    flat = xp.concatenate([each.reshape(-1) for each in ids])
    values = xp.concatenate([each.reshape(-1, *w.shape[1:]) for each in douts])
    return SelectedRows(*merge_rows(flat, values), w.shape[0], is_merged=True)


def _infer_concat(w: Spec, ids: list[Spec], x: list[Spec], *, axis: int) -> tuple[list[Spec], Spec]:
    rows, rule = [_infer(w, each) for each in ids], lookup("concat").infer
    assert rule is not None
    return rows, rule([*rows, *x], axis=axis)


@operator(
    "lookup_tables_concat",
    "W Ids* X*? -> Rows* Out",
    attrs={"padding_idx": -1, "axis": 0},
    infer=_infer_concat,
)
def lookup_tables_concat(
    w: Any,
    ids: list[Array],
    x: list[Array],
    *,
    padding_idx: int,
    axis: int,
    names: Mapping[str, Sequence[str]],
    needs: frozenset[str],
) -> tuple[list[Array | None], Array]:
    """Return the rows of several ids, and their concatenation with X; occurs only in compiled plans.

    Along the last axis, rows are looked up once for all ids, and are views of the concatenation.
    """
    shapes, xp = {each.shape for each in ids}, array_module(ids[0])
    (shape, *others) = shapes
    if padding_idx == -1 and not others and shape[-1:] == (1,) and axis in (-1, len(shape) - 1):
        with contextlib.suppress(InputError):  # the lookups below name the ids
            width, flat = w.shape[1], xp.concatenate(ids, -1).reshape(-1)
            out = _rows(w, flat).reshape(*shape[:-1], len(ids) * width)
            if x:
                out = xp.concatenate([out, *x], axis)
            starts = range(0, len(ids) * width, width)
            return [out[..., at : at + width] if "Rows" in needs else None for at in starts], out
    rows = []
    for name, each in zip(names["Ids"], ids, strict=True):
        try:
            rows.append(lookup_table(w, each, padding_idx=padding_idx))
        except RowError as error:
            error.variable = name
            raise
    return rows, xp.concatenate([*rows, *x], axis)


_ROWS = "the rows of the table, whose number must exceed the largest id"


def _rows(w: Any, ids: Array, kept: Array | None = None) -> Array:
    flat = ids if kept is None else ids[kept]
    if isinstance(w, SelectedRows):
        if len(flat) and not len(w.rows):
            raise InputError(
                "this process has no rows of the distributed table, which is on the parameter servers. To evaluate, "
                "run a test copy that was made after transpile: get_trainer_program().clone(for_test=True)"
            )
        return w.gather(flat)
    # As unsigned numbers, negative ids are huge: one pass finds both kinds of invalid ids.
    if len(flat) and int(flat.view(np.uint64).max()) >= w.shape[0]:
        padding = None if kept is None else ~kept
        require_within(ids, w.shape[0], "Ids", "id", _ROWS, padding)
    return w.take(flat, axis=0)


def _infer_distributed_lookup_table(ids: list[Spec], w: Spec) -> tuple[list[Spec], Spec]:
    return [Spec((*each.shape[:-1], w.shape[1]), w.dtype, each.lod_level) for each in ids], w


@operator(
    "distributed_lookup_table",
    "Ids*+ W -> Outputs*+ WOut?",
    attrs={"table_names": (), "height_sections": (), "endpoints": (), "trainer_id": 0, "padding_idx": -1},
    infer=_infer_distributed_lookup_table,
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
    """Look up ids in tables on parameter servers; rows of padding_idx, if not -1, are zero.

    Each distinct row is fetched only once. The fetched rows also replace those in W, which are from earlier steps.

    Raises:
        InputError: an id is outside the table.
    """
    servers = connected("distributed_lookup_table", remote)
    xp = array_module(w)
    flat = [plain(each).reshape(-1) for each in ids]
    wanted = xp.unique(xp.concatenate(flat))
    if padding_idx != -1:
        wanted = wanted[wanted != padding_idx]
    if len(wanted) and not 0 <= int(wanted[0]) <= int(wanted[-1]) < w.shape[0]:
        for each in flat:
            except_padding = each == padding_idx if padding_idx != -1 else None
            require_within(each, w.shape[0], "Ids", "id", _ROWS, except_padding)
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
