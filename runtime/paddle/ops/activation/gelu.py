# SPDX-License-Identifier: Apache-2.0
"""gelu, the Gaussian error linear unit: Out = X Φ(X), where Φ is the standard normal distribution function.

Source: Hendrycks and Gimpel, 2016. A Chebyshev series computes the error function, which numpy and cupy lack.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate, chebval

from paddle.backend import Array, array_module
from paddle.ops.activation.plain import elementwise

_DEGREES = {np.dtype("float64"): 46, np.dtype("float32"): 22}
_LIMIT = 6.0  # beyond it, erf is 1 to the last bit of a double


@cache
def _series(degree: int) -> tuple[float, ...]:
    """Return the coefficients of erf(√t)/√t over t in [0, limit²], mapped to [-1, 1]."""

    def ratio(places: Array) -> Array:
        roots = np.sqrt((places + 1) / 2) * _LIMIT
        return np.array([math.erf(root) / root if root else 2 / math.sqrt(math.pi) for root in roots])

    return tuple(chebinterpolate(ratio, degree).tolist())


def erf(x: Array) -> Array:
    """Compute the error function of each element, in the dtype of x and to its full precision."""
    xp = array_module(x)
    wide = x if x.dtype in _DEGREES else x.astype(np.float32)
    inner = wide.clip(-_LIMIT, _LIMIT)
    places = inner * inner * (2 / _LIMIT**2) - 1
    coefficients = np.array(_series(_DEGREES[wide.dtype]), wide.dtype)
    found = inner * chebval(places, coefficients, tensor=False)
    return xp.where(xp.isnan(x), x, found.clip(-1, 1).astype(x.dtype, copy=False))


def _gelu(x: Array) -> Array:
    return x * (1 + erf(x * x.dtype.type(math.sqrt(0.5)))) * x.dtype.type(0.5)


def _gelu_grad(x: Array, dout: Array) -> Array:
    """Return dX = (Φ(X) + X φ(X)) dOut."""
    share = (1 + erf(x * x.dtype.type(math.sqrt(0.5)))) * x.dtype.type(0.5)
    density = array_module(x).exp(x * x / -2) * x.dtype.type(1 / math.sqrt(2 * math.pi))
    return (share + x * density) * dout


elementwise("gelu", _gelu, _gelu_grad)
