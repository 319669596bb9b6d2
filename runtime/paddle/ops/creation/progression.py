# SPDX-License-Identifier: Apache-2.0
"""range and linspace: evenly spaced numbers; multiplex: rows of several inputs, chosen one by one."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import same


def _infer_range(start: Spec, end: Spec, step: Spec) -> Spec:
    return Spec((-1,), start.dtype)


@operator("range", "Start End Step -> Out", infer=_infer_range, shares_lod=False)
def range_(start: Array, end: Array, step: Array) -> Array:
    """Return Start, Start + Step, ... below End."""
    numbers = [each.reshape(-1)[0].item() for each in (start, end, step)]
    if not numbers[2]:
        raise InputError("range: Step must not be 0")
    found: Array = array_module(start).arange(*numbers, dtype=start.dtype)
    return found


def _infer_linspace(start: Spec, stop: Spec, num: Spec) -> Spec:
    return Spec((-1,), start.dtype)


@operator("linspace", "Start Stop Num -> Out", infer=_infer_linspace, shares_lod=False)
def linspace(start: Array, stop: Array, num: Array) -> Array:
    """Return Num numbers from Start to Stop, both among them."""
    first, last = (each.reshape(-1)[0].item() for each in (start, stop))
    found: Array = array_module(start).linspace(first, last, int(num.reshape(-1)[0]), dtype=start.dtype)
    return found


def _infer_multiplex(ids: Spec, x: list[Spec]) -> Spec:
    shape = x[0].shape
    for each in x[1:]:
        shape = same(shape, each.shape, "inputs of multiplex")
    return x[0]._replace(shape=shape)


@operator("multiplex", "Ids X* -> Out", infer=_infer_multiplex)
def multiplex(ids: Array, x: list[Array]) -> Array:
    """Out[i] = row i of input Ids[i]."""
    chosen = _chosen(ids, x)
    xp = array_module(x[0])
    out: Array = xp.stack(x)[chosen, xp.arange(len(chosen))]
    return out


@gradient("multiplex", "Ids X* Out@GRAD -> X@GRAD*")
def multiplex_grad(ids: Array, x: list[Array], dout: Array) -> list[Array]:
    """dOut's rows go to the inputs they were taken from."""
    chosen = _chosen(ids, x).reshape(-1, *(1,) * (dout.ndim - 1))
    return [dout * (chosen == number) for number in range(len(x))]


def _chosen(ids: Array, x: list[Array]) -> Array:
    chosen = ids.reshape(-1)
    if len(chosen) and (int(chosen.min()) < 0 or int(chosen.max()) >= len(x)):
        raise InputError(
            f"multiplex: Ids from {int(chosen.min())} to {int(chosen.max())} are not in [0, {len(x)})"
        )
    return chosen
