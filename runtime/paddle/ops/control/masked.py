# SPDX-License-Identifier: Apache-2.0
"""split_lod_tensor and merge_lod_tensor: split rows by a mask, and merge both parts in the original order.

For values with LoD, the mask selects sequences of one level. For plain values, and for masks with as many rows as the
value, it selects rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module, to_host
from paddle.ops.base import segments
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import Lod, LoDArray, Offsets, ends_of, lod_of, plain, with_lod
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, lengths


@operator(
    "split_lod_tensor",
    "X+ Mask -> OutTrue+ OutFalse+",
    attrs={"level": 0},
    infer="X(_, ...) -> X(-1, ...), X(-1, ...)",
)
def split_lod_tensor(x: Any, mask: Array, *, level: int) -> tuple[Any, Any]:
    """Split X into the part where Mask (n, 1) is true, and the rest; outputs have the LoD levels from `level` on."""
    holds = _holds(mask)
    lod = _levels(x, level, holds)
    true, false = (_taken(plain(x), lod, np.flatnonzero(each)) for each in (holds, ~holds))
    return true, false


@gradient("split_lod_tensor", "X+ Mask OutTrue@GRAD OutFalse@GRAD -> X@GRAD")
def split_lod_tensor_grad(x: Any, mask: Array, dtrue: Array, dfalse: Array, *, level: int) -> Array:
    """Return dX: the gradients of both parts, merged in the order of X."""
    holds = _holds(mask)
    lod = _levels(x, level, holds)
    dx: Array = array_module(dtrue).empty_like(plain(x))
    for each, found in ((holds, dtrue), (~holds, dfalse)):
        rows, _ = segments.chosen(lod, np.flatnonzero(each))
        dx[at(rows, dx)] = found
    return dx


def _infer_merge(x: Spec, mask: Spec, true: Spec, false: Spec) -> Spec:
    return true._replace(shape=(-1 if true.lod_level else mask.shape[0], *true.shape[1:]))


@operator("merge_lod_tensor", "X+ Mask InTrue+ InFalse+ -> Out+", attrs={"level": 0}, infer=_infer_merge)
@operator(
    "merge_lod_tensor_infer", "X+ Mask InTrue+ InFalse+ -> Out+", attrs={"level": 0}, infer=_infer_merge
)
def merge_lod_tensor(x: Any, mask: Array, true: Any, false: Any, *, level: int) -> Any:
    """Merge by a mask: return elements of InTrue where Mask is true and of InFalse elsewhere, each in order.

    Out has the levels of X above `level`, followed by those of InTrue and InFalse.
    """
    lod, order = _merged(mask, true, false)
    rows = array_module(plain(true)).concatenate([plain(true), plain(false)])
    out = _taken(rows, lod, order)
    return with_lod(plain(out), (*lod_of(x)[:level], *lod_of(out))) if lod else out


@gradient("merge_lod_tensor", "Mask InTrue+ InFalse+ Out@GRAD -> InTrue@GRAD InFalse@GRAD")
def merge_lod_tensor_grad(mask: Array, true: Any, false: Any, dout: Array) -> tuple[Array, Array]:
    """Return dInTrue and dInFalse: the rows of dOut, split by Mask."""
    rows, _ = segments.chosen(*_merged(mask, true, false))
    joined: Array = array_module(dout).empty_like(dout)
    joined[at(rows, joined)] = dout
    return joined[: len(true)], joined[len(true) :]


def _holds(mask: Array) -> Array:
    return to_host(mask).reshape(-1).astype(bool)


def _levels(x: Any, level: int, holds: Array) -> Lod:
    """Return the levels whose members the mask selects; none if it selects rows.

    Raises:
        InputError: it has a different number of rows.
    """
    lod = lod_of(x)[level:]
    if lod and len(holds) == len(lod[0]) - 1:
        return lod
    if len(holds) != len(x):
        members = f"{len(lod[0]) - 1} sequences in level {level} and " if lod else ""
        raise InputError(f"Mask has {len(holds)} rows, but the values have {members}{len(x)} rows")
    return ()


def _merged(mask: Array, true: Any, false: Any) -> tuple[Lod, Offsets]:
    """Return the concatenated levels of InTrue and InFalse, and the order of their members."""
    holds = _holds(mask)
    depth = max(len(lod_of(true)), len(lod_of(false)))
    parts = [lod_of(each) or (np.zeros(1, np.int64),) * depth if depth else () for each in (true, false)]
    lod = tuple(
        ends_of(np.concatenate([lengths(each) for each in pair])) for pair in zip(*parts, strict=True)
    )
    counts = [
        len(part[0]) - 1 if part else len(each) for part, each in zip(parts, (true, false), strict=True)
    ]
    wanted = [int(holds.sum()), int((~holds).sum())]
    if counts != wanted or (lod and lod[-1][-1] != len(true) + len(false)):
        what = "sequences" if lod else "rows"
        raise InputError(
            f"Mask selects {wanted[0]} {what} from InTrue and {wanted[1]} from InFalse, but they have {counts[0]} and "
            f"{counts[1]}"
        )
    order = np.empty(len(holds), np.int64)
    order[holds], order[~holds] = np.arange(counts[0]), counts[0] + np.arange(counts[1])
    return lod, order


def _taken(data: Array, lod: Lod, chosen: Offsets) -> Any:
    rows, levels = segments.chosen(lod, chosen)
    part = data[at(rows, data)]
    return LoDArray(part, levels) if levels else part
