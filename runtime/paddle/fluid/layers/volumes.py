# SPDX-License-Identifier: Apache-2.0
"""Convolutions and poolings of volumes, (batch, channels, depth, height, width)."""

from __future__ import annotations

from paddle.fluid.layers.convolutions import Convolution, Pooling, TransposedConvolution

__all__ = ["conv3d", "conv3d_transpose", "pool3d"]

conv3d = Convolution("conv3d")
conv3d_transpose = TransposedConvolution("conv3d_transpose")
pool3d = Pooling("pool3d")
