# SPDX-License-Identifier: Apache-2.0
"""Sums, means, extremes and products along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable

__all__ = ["reduce_all", "reduce_any", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum"]


class _Reduction(Protocol):
    def __call__(
        self,
        input: Variable,
        dim: int | Sequence[int] | None = None,
        keep_dim: bool = False,
        name: str | None = None,
    ) -> Variable: ...


def _reduction(op_type: str) -> _Reduction:
    def layer(
        input: Variable,
        dim: int | Sequence[int] | None = None,
        keep_dim: bool = False,
        name: str | None = None,
    ) -> Variable:
        dims = [0] if dim is None else list(dim) if isinstance(dim, (list, tuple)) else [dim]
        attrs = {"dim": dims, "keep_dim": keep_dim, "reduce_all": dim is None}
        return LayerHelper(op_type, name).apply(op_type, {"X": input}, attrs, dtype=input.dtype)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"Return {op_type} along one dimension or several; None: of all, shape [1]."
    return layer


reduce_sum = _reduction("reduce_sum")
reduce_all = _reduction("reduce_all")
reduce_any = _reduction("reduce_any")
reduce_mean = _reduction("reduce_mean")
reduce_max = _reduction("reduce_max")
reduce_min = _reduction("reduce_min")
reduce_prod = _reduction("reduce_prod")
