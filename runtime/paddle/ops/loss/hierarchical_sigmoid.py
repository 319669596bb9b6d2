# SPDX-License-Identifier: Apache-2.0
"""hierarchical_sigmoid: the cross entropy of a class's path in a binary tree of classes (Morin and Bengio, 2005).

In the default tree, the path of class c is the bits of code = c + num_classes after the leading one: bit j is the
branch at node (code >> (j + 1)) - 1. PathTable and PathCode (rows, length), padded with -1, define a custom tree.
Positions after the end of a path cost ln 2 each.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import sigmoid
from paddle.ops.base.attributes import Limit
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import require_within, scatter_sum, table_gradient
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.base.shapes import same

_ATTRS = {
    "num_classes": Limit(2, least=2),
    "remote_prefetch": False,
    "trainer_id": 0,
    "height_sections": (),
    "epmap": (),
    "table_names": (),
    "is_sparse": False,
}
_LIMIT = 40


def _infer(
    x: Spec,
    w: Spec,
    label: Spec,
    table: Spec | None,
    code: Spec | None,
    bias: Spec | None,
    *,
    num_classes: int,
) -> tuple[Spec, Spec, Spec]:
    length = table.shape[1] if table is not None else (num_classes - 1).bit_length()
    return Spec((x.shape[0], 1), x.dtype), Spec((x.shape[0], length), x.dtype), w


@operator(
    "hierarchical_sigmoid",
    "X W Label PathTable? PathCode? Bias? -> Out PreOut~ W_Out~",
    attrs=_ATTRS,
    infer=_infer,
)
def hierarchical_sigmoid(
    x: Array,
    w: Array,
    label: Array,
    table: Array | None,
    code: Array | None,
    bias: Array | None,
    *,
    num_classes: int,
) -> tuple[Array, Array, Array]:
    """Return the cost (rows, 1): Σ ln(1 + e^z) - bit z over the path, with z = x W[node] + b clipped to ±40."""
    same(x.shape[:1], label.shape[:1], "the rows of X and Label")
    xp = array_module(x)
    nodes, bits = _paths(label, table, code, num_classes)
    there = nodes >= 0
    z = xp.einsum("nd,nld->nl", x, w[nodes.clip(0)])
    if bias is not None:
        z = z + bias.reshape(-1)[nodes.clip(0)]
    z = xp.where(there, z, 0).clip(-_LIMIT, _LIMIT).astype(x.dtype, copy=False)
    cost = (xp.log1p(xp.exp(z)) - bits * there * z).sum(axis=1, keepdims=True)
    return cost.astype(x.dtype, copy=False), z, w


@gradient(
    "hierarchical_sigmoid", "X W Label PathTable? PathCode? Bias? PreOut Out@GRAD -> X@GRAD W@GRAD Bias@GRAD?"
)
def hierarchical_sigmoid_grad(
    x: Array,
    w: Array,
    label: Array,
    table: Array | None,
    code: Array | None,
    bias: Array | None,
    z: Array,
    dout: Array,
    *,
    num_classes: int,
    is_sparse: bool,
) -> tuple[Array, Array | SelectedRows, Array | None]:
    """Return the gradients, from sigmoid(z) - bit at each node of the path; dW is sparse if is_sparse."""
    xp = array_module(x)
    nodes, bits = _paths(label, table, code, num_classes)
    there = (nodes >= 0) & (xp.abs(z) < _LIMIT)
    dz = ((sigmoid(z) - bits) * there * dout).astype(x.dtype, copy=False)
    dx = xp.einsum("nl,nld->nd", dz, w[nodes.clip(0)])
    kept = nodes >= 0
    rows, parts = nodes[kept], (dz[:, :, None] * x[:, None, :])[kept]
    dbias = (
        None if bias is None else scatter_sum(dz[kept].reshape(-1, *(1,) * (bias.ndim - 1)), rows, len(bias))
    )
    return dx, table_gradient(rows, parts, w, is_sparse), dbias


def _paths(label: Array, table: Array | None, code: Array | None, classes: int) -> tuple[Array, Array]:
    """Return the nodes (rows, length) of each path, -1 after its end, and the branches, 0 or 1, taken at them."""
    if table is not None and code is not None:
        return table, code
    flat = label.reshape(-1)
    require_within(
        label, classes, "Label", of="the num_classes of the layer: give a larger one, or number labels from 0"
    )
    codes = flat[:, None] + classes
    bit = array_module(label).arange((classes - 1).bit_length(), dtype=np.int64)
    nodes = (codes >> (bit + 1)) - 1
    return nodes, (codes >> bit) & 1
