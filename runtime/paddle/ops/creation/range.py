# SPDX-License-Identifier: Apache-2.0
"""range and linspace: evenly spaced numbers."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import InputError
from paddle.ops.base.registry import operator


@operator("range", "Start End Step -> Out", infer="-> Start(-1, lod=0)", shares_lod=False)
def range_(start: Array, end: Array, step: Array) -> Array:
    """Return the numbers from Start to before End, in steps of Step."""
    numbers = [each.reshape(-1)[0].item() for each in (start, end, step)]
    if not numbers[2]:
        raise InputError("range: Step must not be 0")
    return array_module(start).arange(*numbers, dtype=start.dtype)


@operator("linspace", "Start Stop Num -> Out", infer="-> Start(-1, lod=0)", shares_lod=False)
def linspace(start: Array, stop: Array, num: Array) -> Array:
    """Return Num evenly spaced numbers from Start to Stop, inclusive."""
    first, last = (each.reshape(-1)[0].item() for each in (start, stop))
    return array_module(start).linspace(first, last, int(num.reshape(-1)[0]), dtype=start.dtype)
