# SPDX-License-Identifier: Apache-2.0
"""cos, sin, their inverses, and one over the root."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, gradient, operator


def _infer(x: Spec) -> Spec:
    return x


@operator("cos", "X -> Out", infer=_infer)
def cos(x: Array) -> Array:
    """Return cos x."""
    return array_module(x).cos(x)


@gradient("cos", "X Out@GRAD -> X@GRAD")
def cos_grad(x: Array, dout: Array) -> Array:
    """-sin x dOut."""
    return -array_module(x).sin(x) * dout


@operator("sin", "X -> Out", infer=_infer)
def sin(x: Array) -> Array:
    """Return sin x."""
    return array_module(x).sin(x)


@gradient("sin", "X Out@GRAD -> X@GRAD")
def sin_grad(x: Array, dout: Array) -> Array:
    """cos x dOut."""
    return array_module(x).cos(x) * dout


@operator("acos", "X -> Out", infer=_infer)
def acos(x: Array) -> Array:
    """Return the angle whose cos is x."""
    return array_module(x).arccos(x)


@gradient("acos", "X Out@GRAD -> X@GRAD")
def acos_grad(x: Array, dout: Array) -> Array:
    """-dOut/sqrt(1 - x^2)."""
    return -dout / array_module(x).sqrt(1 - x * x)


@operator("asin", "X -> Out", infer=_infer)
def asin(x: Array) -> Array:
    """Return the angle whose sin is x."""
    return array_module(x).arcsin(x)


@gradient("asin", "X Out@GRAD -> X@GRAD")
def asin_grad(x: Array, dout: Array) -> Array:
    """dOut/sqrt(1 - x^2)."""
    return dout / array_module(x).sqrt(1 - x * x)


@operator("atan", "X -> Out", infer=_infer)
def atan(x: Array) -> Array:
    """Return the angle whose tan is x."""
    return array_module(x).arctan(x)


@gradient("atan", "X Out@GRAD -> X@GRAD")
def atan_grad(x: Array, dout: Array) -> Array:
    """dOut/(1 + x^2)."""
    return dout / (1 + x * x)


@operator("rsqrt", "X -> Out", infer=_infer)
def rsqrt(x: Array) -> Array:
    """Return 1/sqrt x."""
    return 1 / array_module(x).sqrt(x)


@gradient("rsqrt", "Out Out@GRAD -> X@GRAD")
def rsqrt_grad(out: Array, dout: Array) -> Array:
    """-out^3/2 dOut."""
    return out * out * out * dout / -2
