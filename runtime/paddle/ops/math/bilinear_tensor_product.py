# SPDX-License-Identifier: Apache-2.0
"""bilinear_tensor_product: Out[n, k] = X[n] W[k] Y[n]ᵀ + Bias[k]."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree, known


def _infer(x: Spec, y: Spec, weight: Spec, bias: Spec | None) -> Spec:
    ranks = len(x.shape) == len(y.shape) == 2 and len(weight.shape) == 3
    if (
        not ranks
        or x.shape[1] != weight.shape[1]
        or y.shape[1] != weight.shape[2]
        or not agree(x.shape[0], y.shape[0])
    ):
        raise ShapeError(
            f"expected X (n, a), Y (n, b) and Weight (k, a, b), got {x.shape}, {y.shape}, {weight.shape}"
        )
    if bias is not None and bias.shape != (1, weight.shape[0]):
        raise ShapeError(f"expected Bias (1, {weight.shape[0]}), got {bias.shape}")
    return Spec((known(x.shape[0], y.shape[0]), weight.shape[0]), x.dtype, x.lod_level)


@operator("bilinear_tensor_product", "X Y Weight Bias? -> Out", infer=_infer)
def bilinear_tensor_product(x: Array, y: Array, weight: Array, bias: Array | None) -> Array:
    """Return (n, k)."""
    out = array_module(x).einsum("na,kab,nb->nk", x, weight, y, optimize=True)
    return out if bias is None else out + bias


@gradient("bilinear_tensor_product", "X Y Weight Bias? Out@GRAD -> X@GRAD Y@GRAD Weight@GRAD Bias@GRAD?")
def bilinear_tensor_product_grad(
    x: Array, y: Array, weight: Array, bias: Array | None, dout: Array
) -> tuple[Array, Array, Array, Array | None]:
    """Each factor's gradient is the product of the others."""
    einsum = array_module(x).einsum
    return (
        einsum("nk,kab,nb->na", dout, weight, y, optimize=True),
        einsum("nk,na,kab->nb", dout, x, weight, optimize=True),
        einsum("nk,na,nb->kab", dout, x, y, optimize=True),
        None if bias is None else dout.sum(axis=0, keepdims=True),
    )
