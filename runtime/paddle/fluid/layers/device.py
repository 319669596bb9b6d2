# SPDX-License-Identifier: Apache-2.0
"""get_places: returns the devices on which a program can run."""

from __future__ import annotations

from paddle.fluid.errors import FluidTypeError, answering
from paddle.fluid.run.places import Place, cpu_places, cuda_places, is_compiled_with_cuda

__all__ = ["get_places"]


def get_places(device_count: int | None = None, device_type: str | None = None) -> list[Place]:
    """Return a list of devices (places), for example for `CompiledProgram.with_data_parallel`.

    Args:
        device_count: number of places; None means all selected GPUs, or CPU_NUM places of the processor.
        device_type: "CPU" or "CUDA", case-insensitive; None: GPUs if there are any.

    Raises:
        FluidTypeError: device_type is unknown.
        FluidError: CPU_NUM is not a positive number.
    """
    kind = ("CUDA" if is_compiled_with_cuda() else "CPU") if device_type is None else device_type.upper()
    if kind == "CPU":
        return list(cpu_places(device_count))
    if kind != "CUDA":
        raise FluidTypeError(f"get_places: expected device_type CPU or CUDA, got {device_type!r}")
    return list(cuda_places()[:device_count])


__getattr__ = answering(__name__, "paddle.fluid.layers")
