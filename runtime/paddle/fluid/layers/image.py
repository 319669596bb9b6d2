# SPDX-License-Identifier: Apache-2.0
"""Convolutions and poolings of images, (batch, channels, height, width)."""

from __future__ import annotations

from paddle.fluid.layers.convolutions import Convolution, Pooling, TransposedConvolution

__all__ = ["conv2d", "conv2d_transpose", "pool2d"]

conv2d = Convolution("conv2d")
conv2d_transpose = TransposedConvolution("conv2d_transpose")
pool2d = Pooling("pool2d")
