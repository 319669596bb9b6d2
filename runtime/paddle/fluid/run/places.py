# SPDX-License-Identifier: Apache-2.0
"""Places: the devices on which programs run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from paddle.backend import Device, DeviceError
from paddle.fluid.errors import FluidError
from paddle_node.contract.classes import dataclass


@dataclass(frozen=True)
class CPUPlace:
    """The CPU, as the device of an executor."""

    def device(self) -> Device:
        """Return the name of this device in the core, "cpu"."""
        return Device("cpu")


@dataclass(frozen=True)
class CUDAPlace:
    """A GPU; its index counts within CUDA_VISIBLE_DEVICES."""

    index: int = 0

    def device(self) -> Device:
        """Return the name of this device in the core, such as "gpu:0"."""
        return Device(f"gpu:{self.index}")


@dataclass(frozen=True)
class CUDAPinnedPlace(CPUPlace):
    """Pinned host memory, from which GPUs read faster; equivalent to `CPUPlace`."""


Place: TypeAlias = CPUPlace | CUDAPlace


def is_compiled_with_cuda() -> bool:
    """Return whether cupy is installed and finds a GPU."""
    return cuda_device_count() > 0


def cuda_device_count() -> int:
    """Return the number of GPUs; 0 if cupy is not installed."""
    try:
        xp = Device("gpu:0").module()
        return int(xp.cuda.runtime.getDeviceCount())
    except DeviceError:
        return 0
    except RuntimeError:  # cupy is installed, but the CUDA driver is missing
        return 0


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """Return `device_count` CPU places; by default CPU_NUM places, or one if that is not set.

    Raises:
        FluidError: CPU_NUM is not a positive number.
    """
    text = str(device_count) if device_count is not None else os.environ.get("CPU_NUM", "1")
    if not text.isdigit() or int(text) < 1:
        raise FluidError(f"number of CPU places (CPU_NUM): expected a positive number, got {text!r}")
    return [CPUPlace()] * int(text)


def cuda_places(device_ids: Sequence[int] | None = None) -> list[CUDAPlace]:
    """Return GPU places with the given indexes; None means those of FLAGS_selected_gpus, or all GPUs."""
    if device_ids is None:
        selected = os.environ.get("FLAGS_selected_gpus", "")  # noqa: SIM112 (its name)
        device_ids = [int(each) for each in selected.split(",")] if selected else range(cuda_device_count())
    return [CUDAPlace(index) for index in device_ids]


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """Return `device_count` pinned-memory places, which are equivalent to CPU places."""
    return [CUDAPinnedPlace()] * len(cpu_places(device_count))
