# SPDX-License-Identifier: Apache-2.0
"""split_ids, merge_ids, merge_selected_rows and split_byref: divide table rows among shards, and merge them.

An id belongs to shard id mod shards, with ids taken as unsigned numbers, so that negative ones are valid.

split_byref and split_selected_rows: divide a dense or sparse variable into ranges of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import lod_of, plain, with_lod
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.base.shapes import product

_INT64 = np.dtype("int64")


@operator("split_ids", "Ids* -> Out*", shares_lod=False)
def split_ids(ids: list[Any], *, names: Mapping[str, Sequence[str]]) -> list[Any]:
    """Divide ids among shards: return each shard's ids, (k, 1), distinct and ascending; k can be 0.

    For SelectedRows, rows are assigned to their shards in their order, with unchanged numbers and height.
    """
    shards = len(names["Out"])
    if isinstance(ids[0], SelectedRows):
        rows = ids[0]
        owner = _shard(rows.rows, shards)
        kept = [owner == shard for shard in range(shards)]
        return [SelectedRows(rows.rows[each], rows.values[each], rows.height) for each in kept]
    xp = array_module(ids[0])
    distinct = xp.unique(xp.concatenate([each.reshape(-1) for each in ids]))
    owner = _shard(distinct, shards)
    return [distinct[owner == shard][:, None] for shard in range(shards)]


def _infer_merge(ids: list[Spec], rows: list[Spec], x: list[Spec]) -> list[Spec]:
    return [Spec((*_leading(each.shape), x[0].shape[-1]), x[0].dtype, each.lod_level) for each in ids]


@operator("merge_ids", "Ids*+ Rows* X* -> Out*+", infer=_infer_merge)
def merge_ids(ids: list[Any], rows: list[Array], x: list[Array]) -> list[Any]:
    """Return Out[j], with the sequences of Ids[j] and one row per id, from the X whose Rows contain the id.

    Raises:
        InputError: an id is in no Rows or in several, or Rows and X do not match.
    """
    xp = array_module(rows[0])
    known = xp.concatenate([each.reshape(-1) for each in rows])
    values = xp.concatenate([each.reshape(-1, each.shape[-1]) for each in x])
    if len(known) != len(values) or len(xp.unique(known)) != len(known):
        raise InputError(
            f"merge_ids: Rows has {len(known)} ids, which must be distinct, but X has {len(values)} rows"
        )
    order = known.argsort(kind="stable")
    table = SelectedRows(known[order], values[order], len(known))
    merged = []
    for each in ids:
        flat = plain(each)
        out = table.gather(flat.reshape(-1)).reshape(*_leading(flat.shape), values.shape[-1])
        merged.append(with_lod(out, lod_of(each)))
    return merged


@operator("merge_selected_rows", "X -> Out", infer="X")
def merge_selected_rows(x: SelectedRows) -> SelectedRows:
    """Merge repeated rows: return distinct rows in ascending order, with the sums of their values."""
    return x.merged()


@operator("get_tensor_from_selected_rows", "X -> Out", infer="X")
def get_tensor_from_selected_rows(x: SelectedRows) -> Array:
    """Return the values of selected rows as a dense array (rows, width)."""
    return x.values


def _leading(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the leading dimensions of the rows of ids: ids of shape (..., 1) have rows (..., width)."""
    return shape[:-1] if shape[-1] == 1 else (product(shape),)


def _shard(ids: Array, shards: int) -> Array:
    return ids.astype(_INT64, copy=False).view(np.uint64) % np.uint64(shards)


def _infer_dense(x: Spec, *, sections: tuple[int, ...]) -> list[Spec]:
    return _pieces(x, sections)


def _infer_sparse(x: Spec, *, height_sections: tuple[int, ...]) -> list[Spec]:
    return _pieces(x, height_sections)


def _pieces(x: Spec, heights: tuple[int, ...]) -> list[Spec]:
    if x.shape[0] >= 0 and sum(heights) != x.shape[0]:
        raise ShapeError(f"X {x.shape} cannot be split into parts of {heights} rows")
    return [x._replace(shape=(height, *x.shape[1:]), lod_level=0) for height in heights]


@operator("split_byref", "X -> Out*", attrs={"sections": (), "num": 0}, infer=_infer_dense)
def split_byref(x: Array, *, sections: tuple[int, ...]) -> list[Array]:
    """Split rows into consecutive parts of the given heights; the parts are views, not copies."""
    ends = list(accumulate(sections))
    return [x[end - height : end] for height, end in zip(sections, ends, strict=True)]


@operator("split_selected_rows", "X -> Out*", infer=_infer_sparse)
def split_selected_rows(x: SelectedRows, *, height_sections: tuple[int, ...] = ()) -> list[SelectedRows]:
    """Divide selected rows among ranges of rows; each result counts its rows from the start of its range."""
    parts = []
    end = 0
    for height in height_sections:
        start, end = end, end + height
        inside = (x.rows >= start) & (x.rows < end)
        parts.append(SelectedRows(x.rows[inside] - start, x.values[inside], height))
    return parts
