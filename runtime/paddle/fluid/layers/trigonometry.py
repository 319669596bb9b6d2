# SPDX-License-Identifier: Apache-2.0
"""cos, sin, their inverses, and one over the root."""

from __future__ import annotations

from paddle.fluid.layers.activations import function

__all__ = ["acos", "asin", "atan", "cos", "rsqrt", "sin"]

acos = function("acos")
asin = function("asin")
atan = function("atan")
cos = function("cos")
rsqrt = function("rsqrt")
sin = function("sin")
