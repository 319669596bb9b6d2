# SPDX-License-Identifier: Apache-2.0
"""spectral_norm: divides a weight by its largest singular value (Miyato et al., 2018)."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import product


def _infer(weight: Spec, u: Spec, v: Spec, *, dim: int, power_iters: int) -> Spec:
    if len(weight.shape) < 2 or dim not in (0, 1) or power_iters < 0:
        raise AttrError(
            f"expected a Weight with at least two dimensions, dim=0 or dim=1, and power_iters >= 0; got shape "
            f"{weight.shape}, {dim=} and {power_iters=}"
        )
    height = weight.shape[dim]
    width = product([size for axis, size in enumerate(weight.shape) if axis != dim])
    if u.shape != (height,) or v.shape != (width,):
        raise ShapeError(f"expected U ({height},) and V ({width},), got {u.shape} and {v.shape}")
    return weight


@operator("spectral_norm", "Weight U V -> Out", infer=_infer, fresh=True)
def spectral_norm(
    weight: Array, u: Array, v: Array, *, dim: int = 0, power_iters: int = 1, eps: float = 1e-12
) -> Array:
    """Return Out = Weight/σ, σ = uᵀ W v after power_iters steps v = Wᵀu/|Wᵀu|, u = W v/|W v| from U and V.

    W is Weight as a matrix with dimension `dim` as its rows. U and V themselves do not change.
    """
    *_, sigma = _singular(_matrix(weight, dim), u, v, power_iters, eps)
    return weight / sigma


@gradient("spectral_norm", "Weight U V Out@GRAD -> Weight@GRAD", fresh=True)
def spectral_norm_grad(
    weight: Array, u: Array, v: Array, dout: Array, *, dim: int, power_iters: int, eps: float
) -> Array:
    """Return dWeight = (dOut - Σ(dOut Out) u vᵀ)/σ, with u and v as constants."""
    matrix = _matrix(weight, dim)
    u, v, sigma = _singular(matrix, u, v, power_iters, eps)
    part = _matrix(dout, dim)
    found = (part - (part * matrix).sum() / sigma * u[:, None] * v[None, :]) / sigma
    rows = found.reshape(weight.shape[dim], *[size for at, size in enumerate(weight.shape) if at != dim])
    return array_module(weight).moveaxis(rows, 0, dim)


def _matrix(weight: Array, dim: int) -> Array:
    return array_module(weight).moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1)


def _singular(matrix: Array, u: Array, v: Array, steps: int, eps: float) -> tuple[Array, Array, Array]:
    xp, small = array_module(matrix), matrix.dtype.type(eps)
    for _ in range(steps):
        v = matrix.T @ u
        v = v / (xp.sqrt((v * v).sum()) + small)
        u = matrix @ v
        u = u / (xp.sqrt((u * u).sum()) + small)
    return u, v, u @ (matrix @ v)
