# SPDX-License-Identifier: Apache-2.0
"""Unusual convolutions: tree_conv over the nodes of a tree and their descendants (Mou et al., 2016), and conv_shift.

A node's window holds the node and its descendants down to max_depth - 1 levels below. A node at depth d, the i-th of n
children, has the weights eta_t = (max_depth - d)/max_depth for "top", eta_l = (1 - eta_t) (i - 1)/(n - 1) for "left"
(half of 1 - eta_t for an only child), and eta_r = (1 - eta_t)(1 - eta_l) for "right".

conv_shift: circular convolution of each row with a short row of weights (neural Turing machines).
temporal_shift: moves some channels of each video frame to the neighboring frames (Lin, Gan and Han, 2019).
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.errors import AttrError, InputError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree


@operator(
    "tree_conv",
    "NodesVector EdgeSet Filter -> Out",
    infer=(
        "NodesVector(N, nodes, F), EdgeSet(N, edges, 2), Filter(F, 3, size, filters) -> "
        "NodesVector(N, nodes, size, filters)"
    ),
)
def tree_conv(nodes: Array, edges: Array, filters: Array, *, max_depth: int = 2) -> Array:
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


def _infer_conv_shift(x: Spec, y: Spec) -> Spec:
    if len(x.shape) != 2 or len(y.shape) != 2 or not agree(x.shape[0], y.shape[0]):
        raise ShapeError(f"expected X (rows, M) and Y (rows, N), got {x.shape} and {y.shape}")
    if y.shape[1] >= 0 and (y.shape[1] % 2 == 0 or (x.shape[1] >= 0 and y.shape[1] > x.shape[1])):
        raise ShapeError(f"the width of Y must be odd and at most that of X {x.shape}, got {y.shape}")
    return x


@operator("conv_shift", "X Y -> Out", infer=_infer_conv_shift)
def conv_shift(x: Array, y: Array) -> Array:
    """Return the circular convolution of rows X (B, M) and Y (B, N): Out[i] = Σ_j X[(i + j - (N - 1)/2) mod M] Y[j]."""
    return (x[:, _places(x, y)] * y[:, None, :]).sum(axis=2)


@gradient("conv_shift", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def conv_shift_grad(x: Array, y: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX, the convolution of dOut with reversed Y, and dY[j] = Σ_i dOut[i] X[(i + j - (N - 1)/2) mod M]."""
    return conv_shift(dout, y[:, ::-1]), (x[:, _places(x, y)] * dout[:, :, None]).sum(axis=1)


def _places(x: Array, y: Array) -> Array:
    """Return the column of X that each element [i, j] reads, (M, N)."""
    width, weights = x.shape[1], y.shape[1]
    places = np.arange(width)[:, None] + np.arange(weights)[None, :] - (weights - 1) // 2
    return from_host(places % max(width, 1), x)


def _infer_temporal_shift(x: Spec, *, seg_num: int, shift_ratio: float) -> Spec:
    if len(x.shape) != 4 or seg_num < 1 or (x.shape[0] >= 0 and x.shape[0] % seg_num):
        raise ShapeError(f"expected X (N * seg_num, C, H, W), got {x.shape} and seg_num {seg_num}")
    if not 0 < shift_ratio < 0.5:
        raise AttrError(f"shift_ratio: expected a number between 0 and 0.5, got {shift_ratio}")
    return x


@operator("temporal_shift", "X -> Out", attrs={"seg_num": int}, infer=_infer_temporal_shift, fresh=True)
def temporal_shift(x: Array, *, seg_num: int, shift_ratio: float = 0.25) -> Array:
    """Shift some channels of video frames (N · seg_num, C, H, W) along the time axis.

    The first C * shift_ratio channels come from the previous frame, and the next C * shift_ratio from the next frame.
    At the ends of a video of seg_num frames, zeros take their place.
    """
    return _shifted(x, seg_num, shift_ratio, 1)


@gradient("temporal_shift", "Out@GRAD -> X@GRAD", fresh=True)
def temporal_shift_grad(dout: Array, *, seg_num: int, shift_ratio: float) -> Array:
    """Return dX, the channels of dOut shifted in time in the opposite direction."""
    return _shifted(dout, seg_num, shift_ratio, -1)


def _shifted(x: Array, frames: int, ratio: float, towards: int) -> Array:
    videos = x.reshape(len(x) // frames, frames, *x.shape[1:])
    out = array_module(x).zeros_like(videos)
    first, second = int(x.shape[1] * ratio), int(x.shape[1] * 2 * ratio)
    for channels, step in ((slice(first), towards), (slice(first, second), -towards)):
        into, of = slice(max(step, 0), frames + min(step, 0)), slice(max(-step, 0), frames - max(step, 0))
        out[:, into, channels] = videos[:, of, channels]
    out[:, :, second:] = videos[:, :, second:]
    return out.reshape(x.shape)
