# SPDX-License-Identifier: Apache-2.0
"""cast and assign: the same values, in another dtype or under another name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle.backend import Array
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.registry import GRAD, GradOp, Spec, gradient_maker, operator


def _infer_cast(x: Spec, *, out_dtype: VarType) -> Spec:
    return x._replace(dtype=out_dtype.numpy)


@operator("cast", "X -> Out", attrs={"out_dtype": VarType, "in_dtype": VarType}, infer=_infer_cast)
def cast(x: Array, *, out_dtype: VarType) -> Array:
    """Return X as out_dtype; no copy if it is that already."""
    return x.astype(out_dtype.numpy, copy=False)


@gradient_maker("cast")
def _cast_grad(
    inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, Sequence[str]], attrs: Mapping[str, object]
) -> list[GradOp]:
    back = {"out_dtype": attrs["in_dtype"], "in_dtype": attrs["out_dtype"]}
    return [GradOp("cast", {"X": [outputs["Out"][0] + GRAD]}, {"Out": [inputs["X"][0] + GRAD]}, back)]


def _infer_assign(x: Spec) -> Spec:
    return x


@operator("assign", "X -> Out", infer=_infer_assign)
def assign(x: Any) -> Any:
    """Return X; an array or selected rows."""
    return x


@gradient_maker("assign")
def _assign_grad(
    inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, Sequence[str]], attrs: Mapping[str, object]
) -> list[GradOp]:
    return [GradOp("assign", {"X": [outputs["Out"][0] + GRAD]}, {"Out": [inputs["X"][0] + GRAD]}, {})]
