# SPDX-License-Identifier: Apache-2.0
"""scale: Out = scale X + bias, or scale (X + bias)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle.backend import Array
from paddle.ops.base.registry import GRAD, GradOp, Spec, gradient_maker, operator
from paddle.ops.base.selected_rows import SelectedRows


def _infer(x: Spec) -> Spec:
    return x


@operator("scale", "X -> Out", attrs={"scale": 1.0, "bias": 0.0, "bias_after_scale": True}, infer=_infer)
def scale(x: Any, *, scale: float, bias: float, bias_after_scale: bool) -> Any:
    """Scale an array, or the values of selected rows."""
    if isinstance(x, SelectedRows):
        return SelectedRows(x.rows, _scaled(x.values, scale, bias, bias_after_scale), x.height)
    return _scaled(x, scale, bias, bias_after_scale)


def _scaled(x: Array, factor: float, bias: float, bias_after_scale: bool) -> Array:
    shift = x.dtype.type(bias if bias_after_scale else bias * factor)
    scaled = x if factor == 1.0 else x * x.dtype.type(factor)
    return scaled + shift if bias else scaled


@gradient_maker("scale")
def _scale_grad(
    inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, Sequence[str]], attrs: Mapping[str, object]
) -> list[GradOp]:
    return [
        GradOp(
            "scale",
            {"X": [outputs["Out"][0] + GRAD]},
            {"Out": [inputs["X"][0] + GRAD]},
            {"scale": attrs["scale"]},
        )
    ]
