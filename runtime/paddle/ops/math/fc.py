# SPDX-License-Identifier: Apache-2.0
"""fc: a fully connected layer as one operator, as in inference programs; layers.fc uses several operators."""

from __future__ import annotations

from math import prod

from paddle.backend import Array
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree, product


def _infer(x: Spec, w: Spec, bias: Spec | None, *, in_num_col_dims: int) -> Spec:
    if not 1 <= in_num_col_dims < len(x.shape) or len(w.shape) != 2:
        raise ShapeError(
            f"expected W (I, O) and in_num_col_dims from 1 to {len(x.shape) - 1} for Input {x.shape}, got W "
            f"{w.shape} and in_num_col_dims={in_num_col_dims}"
        )
    if not agree(product(x.shape[in_num_col_dims:]), w.shape[0]):
        raise ShapeError(
            f"Input {x.shape}, flattened after {in_num_col_dims} dimensions, does not fit W {w.shape}: "
            f"rows have {product(x.shape[in_num_col_dims:])} elements; expected {w.shape[0]}"
        )
    if bias is not None and bias.shape not in ((w.shape[1],), (1, w.shape[1])):
        raise ShapeError(f"expected Bias (1, {w.shape[1]}), got {bias.shape}")
    return x._replace(shape=(*x.shape[:in_num_col_dims], w.shape[1]))


@operator(
    "fc",
    "Input W Bias? -> Out",
    attrs={"in_num_col_dims": 1, "activation_type": one_of("", "relu")},
    infer=_infer,
    fresh=True,
)
def fc(x: Array, w: Array, bias: Array | None, *, in_num_col_dims: int, activation_type: str) -> Array:
    """Return act(Input W + Bias), where the first in_num_col_dims dimensions of Input are the rows."""
    out: Array = x.reshape(prod(x.shape[:in_num_col_dims]), -1 if x.size else len(w)) @ w
    if bias is not None:
        out += bias.reshape(-1)
    if activation_type == "relu":
        out = out.clip(0, None)
    return out.reshape(*x.shape[:in_num_col_dims], w.shape[1])


@gradient("fc", "Input W Bias? Out Out@GRAD -> Input@GRAD W@GRAD Bias@GRAD?")
def fc_grad(
    x: Array, w: Array, bias: Array | None, out: Array, dout: Array, *, activation_type: str
) -> tuple[Array, Array, Array | None]:
    """Return dInput = dOut Wᵀ, dW = Inputᵀ dOut, dBias = the column sums of dOut, after the activation's gradient."""
    rows = (dout * (out > 0) if activation_type == "relu" else dout).reshape(-1, w.shape[1])
    dw = x.reshape(len(rows), len(w)).T @ rows
    return (rows @ w.T).reshape(x.shape), dw, None if bias is None else rows.sum(axis=0).reshape(bias.shape)
