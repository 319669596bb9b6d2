# SPDX-License-Identifier: Apache-2.0
"""Activations that pull values towards zero or leave small ones out, and selu."""

from __future__ import annotations

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.activations import function
from paddle.fluid.program.variable import Variable

__all__ = ["hard_shrink", "selu", "softshrink", "tanh_shrink", "thresholded_relu"]

tanh_shrink = function("tanh_shrink")


def softshrink(x: Variable, alpha: float | None = None, name: str | None = None) -> Variable:
    """Return x moved towards zero by alpha (None: 0.5), and zero within it."""
    attrs = {"lambda_": alpha}
    return LayerHelper("softshrink", name).apply("softshrink", {"X": x}, attrs, dtype=x.dtype)


def hard_shrink(x: Variable, threshold: float | None = None, name: str | None = None) -> Variable:
    """Return x, or zero within the threshold (None: 0.5)."""
    attrs = {"threshold": threshold}
    return LayerHelper("hard_shrink", name).apply("hard_shrink", {"X": x}, attrs, dtype=x.dtype)


def thresholded_relu(x: Variable, threshold: float | None = None, name: str | None = None) -> Variable:
    """Return x above the threshold (None: 1), else zero."""
    attrs = {"threshold": threshold}
    return LayerHelper("thresholded_relu", name).apply("thresholded_relu", {"X": x}, attrs, dtype=x.dtype)


def selu(
    x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None
) -> Variable:
    """Return scale x, or scale alpha (e^x - 1) below zero; None: the numbers that keep mean and variance."""
    attrs = {"scale": scale, "alpha": alpha}
    return LayerHelper("selu", name).apply("selu", {"X": x}, attrs, dtype=x.dtype)
