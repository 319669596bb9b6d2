# SPDX-License-Identifier: Apache-2.0
"""split_byref and split_selected_rows: a variable cut into ranges of rows, dense or sparse."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.selected_rows import SelectedRows


def _infer_dense(x: Spec, *, sections: tuple[int, ...]) -> list[Spec]:
    return _pieces(x, sections)


def _infer_sparse(x: Spec, *, height_sections: tuple[int, ...]) -> list[Spec]:
    return _pieces(x, height_sections)


def _pieces(x: Spec, heights: tuple[int, ...]) -> list[Spec]:
    if x.shape[0] >= 0 and sum(heights) != x.shape[0]:
        raise ShapeError(f"X {x.shape} cannot be cut into {heights} rows")
    return [x._replace(shape=(height, *x.shape[1:]), lod_level=0) for height in heights]


@operator("split_byref", "X -> Out*", attrs={"sections": (), "num": 0}, infer=_infer_dense)
def split_byref(x: Array, *, sections: tuple[int, ...]) -> list[Array]:
    """Return views of the ranges of rows."""
    ends = list(accumulate(sections))
    return [x[end - height : end] for height, end in zip(sections, ends, strict=True)]


@operator("split_selected_rows", "X -> Out*", attrs={"height_sections": ()}, infer=_infer_sparse)
def split_selected_rows(x: Any, *, height_sections: tuple[int, ...]) -> list[SelectedRows]:
    """Return the rows of each range, counted from its beginning."""
    parts = []
    end = 0
    for height in height_sections:
        start, end = end, end + height
        inside = (x.rows >= start) & (x.rows < end)
        parts.append(SelectedRows(x.rows[inside] - start, x.values[inside], height))
    return parts
