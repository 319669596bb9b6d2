# SPDX-License-Identifier: Apache-2.0
"""expand: X repeated expand_times[i] times along dimension i."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError
from paddle.ops.base.registry import Spec, gradient, operator


def _infer(x: Spec, *, expand_times: tuple[int, ...]) -> Spec:
    if len(expand_times) != len(x.shape) or any(times < 1 for times in expand_times):
        raise AttrError(
            f"expand_times: expected {len(x.shape)} positive numbers for X {x.shape}, got {expand_times}"
        )
    shape = tuple(-1 if size < 0 else size * times for size, times in zip(x.shape, expand_times, strict=True))
    return x._replace(shape=shape)


@operator("expand", "X -> Out", attrs={"expand_times": ()}, infer=_infer)
def expand(x: Array, *, expand_times: tuple[int, ...]) -> Array:
    """Return X tiled."""
    return array_module(x).tile(x, expand_times)


@gradient("expand", "X Out@GRAD -> X@GRAD")
def expand_grad(x: Array, dout: Array, *, expand_times: tuple[int, ...]) -> Array:
    """dX = sum of dOut over the copies."""
    split = [part for times, size in zip(expand_times, x.shape, strict=True) for part in (times, size)]
    return dout.reshape(split).sum(axis=tuple(range(0, len(split), 2)))
