# SPDX-License-Identifier: Apache-2.0
"""Arrays of any library as numpy arrays: numpy's and cupy's own, and whatever speaks DLPack or the array interface.

No library is imported for it. What lies in the host's memory is looked at where it lies; only what lies on a GPU
is copied. Nothing is converted: a dtype that numpy does not have, or one that is not asked for, is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paddle import backend
from paddle.errors import ConfigError

# DLPack's device types that the processor can read: its own memory, pinned memory of CUDA and ROCm, managed memory.
_HOST_DEVICES = frozenset({1, 3, 11, 13})

HostArray = npt.NDArray[Any]


class Target(NamedTuple):
    """Where values for somebody's array go.

    Attributes:
        host: C-contiguous, to be filled; it may be the array itself.
        finish: to be called when it is filled.
    """

    host: HostArray
    finish: Callable[[], None]


def host_array(array: Any, what: str) -> HostArray:
    """Return the array as numpy sees it; not to be changed.

    Args:
        array: numpy, cupy, or anything with `__dlpack__` or an array interface, such as a PyTorch tensor.
        what: how an error calls it.

    Raises:
        ConfigError: it is no array, or none that numpy can read.
    """
    if isinstance(array, np.ndarray):
        return array
    if backend.array_module(array) is not np:
        host: HostArray = backend.to_host(array)
        return host
    plain = _detached(array)
    if hasattr(plain, "__dlpack__"):
        return _from_dlpack(plain if _is_on_host(plain) else _brought_home(plain, what), what)
    if hasattr(plain, "__array_interface__"):
        return np.asarray(plain)
    raise ConfigError(
        f"{what}: expected an array: numpy, cupy, or one with __dlpack__ as PyTorch's tensors have, "
        f"got {type(array).__name__}"
    )


def target(array: Any, what: str) -> Target:
    """Return where to write what shall be in the array.

    Raises:
        ConfigError: it is no array, or it cannot be changed.
    """
    if not isinstance(array, np.ndarray) and backend.array_module(array) is not np:
        return _through_buffer(array.shape, array.dtype, lambda host: array.set(host))
    plain = _detached(array)
    if hasattr(plain, "__dlpack__") and not isinstance(plain, np.ndarray) and not _is_on_host(plain):
        seen = host_array(array, what)
        return _through_buffer(seen.shape, seen.dtype, lambda host: _send(host, plain))
    view = _writeable(plain, host_array(array, what), what)
    if view.flags.c_contiguous:
        return Target(view, _nothing)
    return _through_buffer(view.shape, view.dtype, lambda host: np.copyto(view, host))


def _through_buffer(shape: tuple[int, ...], dtype: Any, put: Callable[[HostArray], None]) -> Target:
    host = np.empty(shape, dtype)
    return Target(host, lambda: put(host))


def _nothing() -> None: ...


def _detached(array: Any) -> Any:
    """A tensor that takes part in automatic differentiation lets nobody look at it."""
    return array.detach() if hasattr(array, "detach") else array


def _is_on_host(array: Any) -> bool:
    device, _ = array.__dlpack_device__()
    return int(device) in _HOST_DEVICES


def _brought_home(array: Any, what: str) -> Any:
    if hasattr(array, "cpu"):
        return array.cpu()
    if hasattr(array, "__cuda_array_interface__"):
        return backend.to_host(_on_gpu(array))
    raise ConfigError(
        f"{what}: a {type(array).__name__} on a device that numpy cannot read: copy it to the host"
    )


def _send(host: HostArray, array: Any) -> None:
    """Copy to an array on a GPU."""
    if hasattr(array, "copy_") and hasattr(array, "new_tensor"):
        array.copy_(array.new_tensor(host))
    else:
        _on_gpu(array).set(host)


def _on_gpu(array: Any) -> Any:
    """The array as cupy sees it, not copied."""
    return backend.Device("gpu:0").module().asarray(array)


def _from_dlpack(array: Any, what: str) -> HostArray:
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        dtype = getattr(array, "dtype", "of unknown dtype")
        raise ConfigError(f"{what}: numpy cannot read a {type(array).__name__} ({dtype}): {error}") from error


def _writeable(array: Any, view: HostArray, what: str) -> HostArray:
    """Older DLPack cannot say that an array may be changed; then its own library must, about the same memory."""
    if view.flags.writeable:
        return view
    if not isinstance(array, np.ndarray) and callable(getattr(array, "numpy", None)):
        own: HostArray = array.numpy()
        same = (own.ctypes.data, own.shape, own.strides) == (view.ctypes.data, view.shape, view.strides)
        if same and own.flags.writeable:
            return own
    raise ConfigError(f"{what}: expected an array that can be changed in place, got a read-only one")
