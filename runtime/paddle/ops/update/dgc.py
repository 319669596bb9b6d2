# SPDX-License-Identifier: Apache-2.0
"""Deep gradient compression (Lin et al., 2018): sends only the largest elements of gradients, and retains the rest.

u = m u + g, v = v + u; the k largest |v| are sent, and u and v become 0 there. Before `rampup_begin_step` the whole
gradient is sent; afterwards the fraction that is not sent follows `sparsity`, evenly over `rampup_step` steps.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.selected_rows import SelectedRows


def _infer(u: Spec, v: Spec, grad: Spec, current_step: Spec) -> tuple[Spec, Spec, Spec, Spec]:
    return u, v, Spec((prod(grad.shape),), grad.dtype), Spec((1,), np.dtype("float32"))


@operator(
    "dgc",
    "U V Grad current_step -> U_out V_out EncodeGrad k",
    attrs={
        "m": 0.9,
        "use_nesterov": True,
        "sparsity": tuple,
        "rampup_begin_step": 0.0,
        "rampup_step": 0.0,
    },
    infer=_infer,
    in_place={"U_out": "U", "V_out": "V"},
    shares_lod=False,
)
def dgc(
    u: Array,
    v: Array,
    grad: Array,
    current_step: Array,
    *,
    m: float,
    use_nesterov: bool,
    sparsity: tuple[float, ...],
    rampup_begin_step: float,
    rampup_step: float,
) -> tuple[Array, Array, Any, Array]:
    """Compress a gradient: return U, V, the value to send, and its number of elements k, (1,) float32.

    The value to send is the whole gradient as one row (n,), or the indices and values of selected elements.
    """
    step = int(current_step[0]) - int(rampup_begin_step)
    if step < 0:
        return u, v, grad.reshape(-1), np.array([grad.size], np.float32)
    at = min(int(step * len(sparsity) / max(rampup_step, 1.0)), len(sparsity) - 1)
    count = max(1, min(grad.size, int(grad.size * (1.0 - sparsity[at]))))
    if use_nesterov:
        u += grad
        u *= u.dtype.type(m)
        v += u
        v += grad
    else:
        u *= u.dtype.type(m)
        u += grad
        v += u
    xp = array_module(v)
    flat_u, flat_v = u.reshape(-1), v.reshape(-1)
    chosen = xp.sort(xp.argpartition(abs(flat_v), grad.size - count)[grad.size - count :]).astype(np.int64)
    sent = SelectedRows(chosen, flat_v[chosen], grad.size, is_merged=True)
    flat_u[chosen] = 0
    flat_v[chosen] = 0
    return u, v, sent, np.array([count], np.float32)


@operator("dgc_decode", "X Like -> Out", infer="Like(...) -> X(..., lod=0)", shares_lod=False)
def dgc_decode(x: Any, like: Array) -> Array:
    """Decompress the sent values, summed over trainers: return a gradient of Like's shape."""
    if isinstance(x, SelectedRows):
        x = x.to_dense()
    return x.reshape(like.shape)


@operator(
    "dgc_momentum",
    "Param Grad Velocity LearningRate current_step -> ParamOut VelocityOut",
    attrs={"mu": float},
    infer="Param, Velocity",
    in_place={"ParamOut": "Param", "VelocityOut": "Velocity"},
)
def dgc_momentum(
    param: Array,
    grad: Array,
    velocity: Array,
    rate: Array,
    current_step: Array,
    *,
    mu: float,
    use_nesterov: bool = False,
    rampup_begin_step: float = 0.0,
) -> tuple[Array, Array]:
    """Apply momentum before `rampup_begin_step`, then plain SGD, because the sent values include momentum."""
    eta = rate.reshape(()).astype(param.dtype)
    if int(current_step[0]) >= int(rampup_begin_step):
        param -= eta * grad
        return param, velocity
    velocity *= velocity.dtype.type(mu)
    velocity += grad
    param -= eta * (grad + param.dtype.type(mu) * velocity if use_nesterov else velocity)
    return param, velocity
