# SPDX-License-Identifier: Apache-2.0
"""split_lod_tensor and merge_lod_tensor: rows for which a mask holds, all others, and both in their old order."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError
from paddle.ops.base.registry import Spec, gradient, operator


def _infer_split(x: Spec, mask: Spec) -> tuple[Spec, Spec]:
    part = x._replace(shape=(-1, *x.shape[1:]), lod_level=0)
    return part, part


@operator(
    "split_lod_tensor", "X Mask -> OutTrue OutFalse", attrs={"level": 0}, infer=_infer_split, shares_lod=False
)
def split_lod_tensor(x: Array, mask: Array) -> tuple[Array, Array]:
    """Return the rows of X where Mask (rows, 1) holds, and those where it does not."""
    holds = _mask(mask, len(x))
    return x[holds], x[~holds]


@gradient("split_lod_tensor", "X Mask OutTrue@GRAD OutFalse@GRAD -> X@GRAD")
def split_lod_tensor_grad(x: Array, mask: Array, dtrue: Array, dfalse: Array) -> Array:
    """Put the rows' gradients back in order."""
    return merge_lod_tensor(x, mask, dtrue, dfalse)


def _infer_merge(x: Spec, mask: Spec, true: Spec, false: Spec) -> Spec:
    return true._replace(shape=(mask.shape[0], *true.shape[1:]))


@operator(
    "merge_lod_tensor",
    "X Mask InTrue InFalse -> Out",
    attrs={"level": 0},
    infer=_infer_merge,
    shares_lod=False,
)
def merge_lod_tensor(x: Array, mask: Array, true: Array, false: Array) -> Array:
    """Return rows of InTrue where Mask holds and of InFalse where it does not, each in order."""
    holds = _mask(mask, len(true) + len(false))
    out: Array = array_module(true).empty((len(holds), *true.shape[1:]), true.dtype)
    out[holds], out[~holds] = true, false
    return out


@gradient("merge_lod_tensor", "Mask Out@GRAD -> InTrue@GRAD InFalse@GRAD")
def merge_lod_tensor_grad(mask: Array, dout: Array) -> tuple[Array, Array]:
    """Split the rows' gradients."""
    holds = _mask(mask, len(dout))
    return dout[holds], dout[~holds]


def _mask(mask: Array, rows: int) -> Array:
    holds = mask.reshape(-1).astype(bool)
    if len(holds) != rows:
        raise InputError(f"Mask has {len(holds)} rows, the values have {rows}")
    return holds
