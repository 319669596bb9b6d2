# SPDX-License-Identifier: Apache-2.0
"""cast and assign: copy values to another dtype or variable; is_empty, isfinite, isinf, isnan and shape: queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.registry import GRAD, GradOp, Names, Spec, gradient_maker, operator

_BOOL, _INT32 = np.dtype("bool"), np.dtype("int32")


@operator(
    "cast",
    "X -> Out",
    attrs={"out_dtype": VarType, "in_dtype": VarType},
    infer="X(...) -> out_dtype(..., lod=X)",
)
def cast(x: Array, *, out_dtype: VarType) -> Array:
    """Return X converted to out_dtype, without a copy if it has that dtype already."""
    return x.astype(out_dtype.numpy, copy=False)


@gradient_maker("cast")
def _cast_grad(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
    back = {"out_dtype": attrs["in_dtype"], "in_dtype": attrs["out_dtype"]}
    return [GradOp("cast", {"X": [outputs["Out"][0] + GRAD]}, {"Out": [inputs["X"][0] + GRAD]}, back)]


@operator("assign", "X -> Out", infer="X")
def assign(x: Any) -> Any:
    """Return X itself, an array or selected rows, for another variable."""
    return x


@gradient_maker("assign")
def _assign_grad(inputs: Names, outputs: Names, attrs: Mapping[str, object]) -> list[GradOp]:
    return [GradOp("assign", {"X": [outputs["Out"][0] + GRAD]}, {"Out": [inputs["X"][0] + GRAD]}, {})]


@operator("is_empty", "X -> Out", infer="-> bool(1)", shares_lod=False)
def is_empty(x: Array) -> Array:
    """Return whether X has no elements, (1,) bool."""
    return np.array([x.size == 0])


def _asking(name: str, every: bool) -> Callable[[Array], Array]:
    def ask(x: Array) -> Array:
        found = getattr(array_module(x), name)(x)
        return (found.all() if every else found.any()).reshape(1)

    return ask


# isfinite tests whether all elements are, the others whether any is.
for _type in ("isfinite", "isinf", "isnan"):
    operator(_type, "X -> Out", infer="-> bool(1)", shares_lod=False)(_asking(_type, _type == "isfinite"))


def _infer_shape(x: Spec) -> Spec:
    return Spec((len(x.shape),), _INT32)


@operator("shape", "Input -> Out", infer=_infer_shape, shares_lod=False)
def shape(x: Array) -> Array:
    """Return the shape of X as a vector (rank,) int32."""
    return array_module(x).asarray(np.array(x.shape, _INT32))
