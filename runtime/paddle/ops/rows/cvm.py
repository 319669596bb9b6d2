# SPDX-License-Identifier: Apache-2.0
"""cvm (continuous value model): transforms or removes the show and click counts at the beginning of CTR embeddings."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import LoDArray, lod_of, plain, with_lod
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, owners


def _infer(x: Spec, cvm: Spec, *, use_cvm: bool) -> Spec:
    if len(x.shape) != 2 or x.shape[1] < 2 or cvm.shape[1:] != (2,):
        raise ShapeError(f"expected X (rows, 2 or more) and CVM (rows, 2), got {x.shape} and {cvm.shape}")
    return x._replace(shape=(x.shape[0], x.shape[1] - (0 if use_cvm else 2)))


@operator("cvm", "X+ CVM -> Y+", infer=_infer)
def cvm(x: Any, counts: Array, *, use_cvm: bool = True) -> Any:
    """Return X with ln(shows + 1) and ln(clicks + 1) - ln(shows + 1) as first columns, or without both columns."""
    data = plain(x)
    if not use_cvm:
        return with_lod(data[:, 2:].copy(), lod_of(x))
    logs = array_module(data).log(data[:, :2] + 1)
    out = data.copy()
    out[:, 0] = logs[:, 0]
    out[:, 1] = logs[:, 1] - logs[:, 0]
    return with_lod(out, lod_of(x))


@gradient("cvm", "X+ CVM Y@GRAD -> X@GRAD")
def cvm_grad(x: Any, counts: Array, dy: Array, *, use_cvm: bool) -> Array:
    """Return dX: dY with the counts of CVM, of the row or of its sequence, as first columns.

    These columns are not derivatives; tables add them to their counts.
    """
    data = plain(x)
    dx = array_module(data).empty_like(data)
    dx[:, 2:] = dy[:, 2:] if use_cvm else dy
    dx[:, :2] = counts[at(owners(x.lod[0]), counts)] if isinstance(x, LoDArray) else counts
    return dx
