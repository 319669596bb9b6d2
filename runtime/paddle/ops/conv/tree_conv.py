# SPDX-License-Identifier: Apache-2.0
"""tree_conv: tree-based convolution, over the nodes of a tree and their descendants (Mou et al., 2016).

A node's window holds the node and its descendants down to max_depth - 1 levels below. A node at depth d, the i-th of n
children, has the weights eta_t = (max_depth - d)/max_depth for "top", eta_l = (1 - eta_t) (i - 1)/(n - 1) for "left"
(half of 1 - eta_t for an only child), and eta_r = (1 - eta_t)(1 - eta_l) for "right".
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.registry import gradient, operator


@operator(
    "tree_conv",
    "NodesVector EdgeSet Filter -> Out",
    attrs={"max_depth": 2},
    infer=(
        "NodesVector(N, nodes, F), EdgeSet(N, edges, 2), Filter(F, 3, size, filters) -> "
        "NodesVector(N, nodes, size, filters)"
    ),
)
def tree_conv(nodes: Array, edges: Array, filters: Array, *, max_depth: int) -> Array:
    """Sum (eta_l W_l + eta_r W_r + eta_t W_t) x over each node's window; return (N, nodes, size, filters).

    Args:
        nodes: (N, nodes, F).
        edges: (N, edges, 2) int32 (parent, child), counted from 1; the first edge with a 0 ends the list.
        filters: (F, 3, size, filters), for left, right and top.

    Raises:
        InputError: an edge refers to a missing node.
    """
    weights = _weights(nodes, edges, max_depth)
    return array_module(nodes).einsum("nkuv,nvf,fkom->nuom", weights, nodes, filters, optimize=True)


@gradient("tree_conv", "NodesVector EdgeSet Filter Out@GRAD -> NodesVector@GRAD Filter@GRAD")
def tree_conv_grad(
    nodes: Array, edges: Array, filters: Array, dout: Array, *, max_depth: int
) -> tuple[Array, Array]:
    """Return the gradients of the nodes (N, nodes, F) and of the filters (F, 3, size, filters)."""
    xp, weights = array_module(nodes), _weights(nodes, edges, max_depth)
    dnodes = xp.einsum("nkuv,nuom,fkom->nvf", weights, dout, filters, optimize=True)
    return dnodes, xp.einsum("nkuv,nvf,nuom->fkom", weights, nodes, dout, optimize=True)


def _weights(nodes: Array, edges: Array, max_depth: int) -> Array:
    """Return (N, 3, nodes, nodes): the left, right and top weights of node v in the window of node u."""
    found = np.zeros((len(nodes), 3, nodes.shape[1], nodes.shape[1]))
    for each, listed in zip(found, to_host(edges), strict=True):
        ends = np.flatnonzero((listed == 0).any(axis=1))
        valid = listed[: ends[0]] if len(ends) else listed
        count = len(valid) + 1
        if len(valid) and not (valid.min() >= 1 and valid.max() <= min(count, nodes.shape[1])):
            raise InputError(
                f"EdgeSet: expected node numbers from 1 to {min(count, nodes.shape[1])} ({len(valid)} edges, "
                f"{nodes.shape[1]} nodes), got {valid.min()} to {valid.max()}"
            )
        children = defaultdict(list)
        for parent, child in valid.tolist():
            children[parent].append(child)
        for root in range(1, min(count, nodes.shape[1]) + 1):
            _enter(each[:, root - 1], children, root, max_depth)
    return from_host(found.astype(nodes.dtype), nodes)


def _enter(window: Array, children: dict[int, list[int]], root: int, max_depth: int) -> None:
    """Store the weights of one window, (3, nodes)."""
    window[2, root - 1] += 1.0
    level, seen = [root], {root}
    for depth in range(1, max_depth):
        top = (max_depth - depth) / max_depth
        below = []
        for parent in level:
            siblings = children[parent]
            for number, child in enumerate(siblings):
                if child not in seen:
                    share = 0.5 if len(siblings) == 1 else number / (len(siblings) - 1)
                    left = (1 - top) * share
                    window[:, child - 1] += left, (1 - top) * (1 - left), top
                    seen.add(child)
                    below.append(child)
        level = below
