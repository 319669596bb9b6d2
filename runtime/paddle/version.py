# SPDX-License-Identifier: Apache-2.0
"""The version of this runtime, and the output of `paddle version`.

The lines and their order are those of release 0.11.0; the values are facts about this machine and this runtime.
"""

from __future__ import annotations

from pathlib import Path

__version__ = "0.11.0"

_CPU_INFO = Path("/proc/cpuinfo")


def describe() -> str:
    """Return the text of `paddle version`, without a final newline."""
    features = {
        "with_avx": _has_avx(),
        "with_gpu": _has_gpu(),
        "with_mkl": False,
        "with_mkldnn": False,
        "with_double": False,  # parameters and gradients are float32
        "with_python": True,
        "with_rdma": False,
        "with_timer": False,
    }
    lines = [f"    {name}: {'ON' if on else 'OFF'}" for name, on in features.items()]
    return "\n".join([f"PaddlePaddle {__version__}, compiled with", *lines])


def _has_avx() -> bool:
    try:
        text = _CPU_INFO.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return any(line.startswith("flags") and " avx " in f"{line} " for line in text.splitlines())


def _has_gpu() -> bool:
    from paddle.backend import Device, DeviceError

    try:
        return int(Device("gpu:0").module().cuda.runtime.getDeviceCount()) > 0
    except (DeviceError, RuntimeError, OSError):  # no cupy, no driver, no library
        return False
