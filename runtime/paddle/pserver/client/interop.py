# SPDX-License-Identifier: Apache-2.0
"""Converts arrays of any library to numpy arrays: numpy, cupy, and all that support DLPack or the array interface.

Gradients, row ids and output arrays pass through this module, which checks them against the tensors of the servers.
It imports none of these libraries. Data in host memory is used in place; only data on a GPU is copied. Dtypes are not
converted; an unexpected dtype, or one that numpy lacks, is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle import backend
from paddle.errors import ConfigError
from paddle.optim.spec import ParameterSpec, RowGradient
from paddle.pserver.sparse.distinct import DistinctIds
from paddle_node.contract.classes import NamedTuple

# DLPack's device types that the processor can read: its own memory, pinned memory of CUDA and ROCm, managed memory.
_HOST_DEVICES = frozenset({1, 3, 11, 13})

_FLOAT = np.dtype(np.float32)
_ID_TYPES = (np.dtype(np.int64), np.dtype(np.int32))

HostArray = npt.NDArray[Any]


class Target(NamedTuple):
    """A numpy array that receives the values for a caller's array.

    Attributes:
        host: C-contiguous array to fill; it can be the caller's array itself.
        finish: function to call after `host` has been filled; copies to a GPU where needed.
    """

    host: HostArray
    finish: Callable[[], None]


def require_names(given: object, what: str) -> None:
    """Raise ConfigError if the argument is not a mapping of names, such as a list of tensors."""
    if not isinstance(given, (dict, Mapping)):  # a dict is recognized at once
        raise ConfigError(
            f"{what}: expected tensors by name, such as {{'w': w}}, got a {type(given).__name__}"
        )


def host_array(array: Any, what: str) -> HostArray:
    """Convert an array of any library to a numpy array, which must not be changed.

    Args:
        array: numpy, cupy, or anything with `__dlpack__` or an array interface, such as a PyTorch tensor.
        what: the array's name in error messages.

    Raises:
        ConfigError: the value is not an array, or not one that numpy can read.
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
        f"{what}: expected an array of numpy or cupy, or an object with __dlpack__, such as a PyTorch tensor; "
        f"got {type(array).__name__}"
    )


def target(array: Any, what: str) -> Target:
    """Return a numpy array to fill, with values for a caller's array of any library.

    Raises:
        ConfigError: the value is not an array, or it is read-only.
    """
    if isinstance(array, np.ndarray):
        if array.flags.carray:  # C-contiguous, aligned and writeable
            return Target(array, _nothing)
        plain, view = array, array
    else:
        if backend.array_module(array) is not np:
            return _through_buffer(array.shape, array.dtype, lambda host: array.set(host))
        plain, view = _detached(array), host_array(array, what)
        if hasattr(plain, "__dlpack__") and not _is_on_host(plain):
            return _through_buffer(view.shape, view.dtype, lambda host: _send(host, plain))
    view = _writeable(plain, view, what)
    if view.flags.c_contiguous:
        return Target(view, _nothing)
    return _through_buffer(view.shape, view.dtype, lambda host: np.copyto(view, host))


class Destinations:
    """Validates the arrays into which tensors are pulled.

    Args:
        growing: the tables that cannot be pulled as a whole.
    """

    def __init__(self, parameters: Mapping[str, ParameterSpec], growing: Collection[str]) -> None:
        self._parameters, self._growing = parameters, growing
        self._shapes = {name: each.shape for name, each in parameters.items() if not each.sparse}

    def of(self, out: Mapping[str, Any]) -> tuple[dict[str, HostArray], list[Callable[[], None]]]:
        """Return the numpy arrays to fill with whole tensors, for a caller's arrays by tensor.

        The second result has the functions to call after these arrays have been filled; see `Target`.

        Raises:
            ConfigError: a tensor does not exist or is a growing table, or an array has a different shape or dtype.
        """
        require_names(out, "out")
        hosts, finish = {}, []
        for name, array in out.items():
            if self.is_plain(name, array) and array.flags.carray:
                hosts[name] = array
                continue
            place = self._of(name, array)
            hosts[name] = place.host
            if place.finish is not _nothing:
                finish.append(place.finish)
        return hosts, finish

    def is_plain(self, name: str, array: Any) -> bool:
        """Return whether an array of numpy can hold a whole dense tensor as is; False means that it may hold one."""
        return type(array) is np.ndarray and array.dtype is _FLOAT and array.shape == self._shapes.get(name)

    def _of(self, name: str, array: Any) -> Target:
        what = f"out array of tensor {name}"
        if name in self._growing:
            raise ConfigError(
                f"{what}: a growing table cannot be read as a whole; look up its rows with pull_rows"
            )
        place = target(array, what)
        self.check(name, place.host, what)
        return place

    def check(self, name: str, array: HostArray, what: str) -> None:
        """Check that an array can hold a whole tensor.

        Raises:
            ConfigError: the tensor does not exist, or the array has a different shape or dtype.
        """
        if name not in self._parameters:
            raise ConfigError(f"{what}: no such tensor was created; known: {', '.join(self._parameters)}")
        shape = self._parameters[name].shape
        # A single number is stored as an array of one element.
        if (array.shape or (1,)) != shape or array.dtype != np.float32:
            raise ConfigError(f"{what}: expected {shape} float32, got {array.shape} {array.dtype}")


def put_rows(name: str, found: HostArray, out: Any) -> None:
    """Fill `out` with rows of a tensor. Raises ConfigError if `out` has a different shape or dtype."""
    place = target(out, f"out array of tensor {name}")
    if place.host.shape != found.shape or place.host.dtype != found.dtype:
        raise ConfigError(
            f"out array of tensor {name}: expected {found.shape} float32, got {place.host.shape} "
            f"{place.host.dtype}"
        )
    place.host[...] = found
    place.finish()


def read_ids(array: Any, what: str) -> npt.NDArray[np.int64]:
    """Return row ids, of any shape, as C-contiguous int64. Raises ConfigError if the ids are not int64 or int32."""
    ids = host_array(array, what)
    if ids.dtype not in _ID_TYPES:
        raise ConfigError(f"{what}: expected int64 or int32, got {ids.dtype}")
    return np.require(ids, np.int64, "C")


def row_gradient(ids: Any, values: Any, what: str, counts: Sequence[Any] = ()) -> RowGradient:
    """Return the gradient of rows: each distinct row once, its values summed in the given order.

    Args:
        ids: (...) int64 or int32.
        values: (..., width) float32.
        what: the tensor's name in error messages.
        counts: shows and clicks, one number per id each; they become the last columns of the values.

    Raises:
        ConfigError: the shapes do not match, or a dtype is wrong.
    """
    rows = read_ids(ids, f"row ids of {what}")
    found = float_rows(values, rows.shape, what)
    if counts:
        found = np.concatenate((found, *(counted(each, rows.shape, what) for each in counts)), axis=1)
    rows = rows.reshape(-1)
    if (np.diff(rows) > 0).all():
        return RowGradient(rows, np.ascontiguousarray(found))
    distinct = DistinctIds.of(rows)
    return RowGradient(distinct.ids, distinct.add_up(found))


def counted(numbers: Any, shape: tuple[int, ...], what: str) -> npt.NDArray[np.float32]:
    """Return the shows or clicks of ids of the given shape as a column (n, 1). Raises ConfigError if shapes differ."""
    found = host_array(numbers, f"shows or clicks of {what}")
    if found.shape != shape:
        raise ConfigError(
            f"{what}: expected shows and clicks of shape {shape}, like its ids, got {found.shape}"
        )
    return found.reshape(-1, 1).astype(np.float32)


def float_rows(values: Any, shape: tuple[int, ...], what: str) -> npt.NDArray[np.float32]:
    """Return the rows for ids of the given shape as (n, width) float32.

    Raises:
        ConfigError: the values are not (*shape, width) float32.
    """
    found = host_array(values, what)
    if found.dtype != np.float32 or found.ndim != len(shape) + 1 or found.shape[:-1] != shape:
        expected = ", ".join(map(str, shape))
        raise ConfigError(
            f"{what}: expected ({expected}, width) float32 for ids {shape}, got {found.shape} {found.dtype}"
        )
    return found.reshape(-1, found.shape[-1])


def _through_buffer(shape: tuple[int, ...], dtype: Any, put: Callable[[HostArray], None]) -> Target:
    host = np.empty(shape, dtype)
    return Target(host, lambda: put(host))


def _nothing() -> None: ...


def _detached(array: Any) -> Any:
    """Detach a tensor that takes part in automatic differentiation, since it cannot be read otherwise."""
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
        f"{what}: this {type(array).__name__} is on a device that numpy cannot read; copy it to the host"
    )


def _send(host: HostArray, array: Any) -> None:
    """Copy to an array on a GPU."""
    if hasattr(array, "copy_") and hasattr(array, "new_tensor"):
        array.copy_(array.new_tensor(host))
    else:
        _on_gpu(array).set(host)


def _on_gpu(array: Any) -> Any:
    """Return the array as a cupy array, without copying."""
    return backend.Device("gpu:0").module().asarray(array)


def _from_dlpack(array: Any, what: str) -> HostArray:
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        dtype = getattr(array, "dtype", "of unknown dtype")
        raise ConfigError(f"{what}: numpy cannot read a {type(array).__name__} ({dtype}): {error}") from error


def _writeable(array: Any, view: HostArray, what: str) -> HostArray:
    """Check that an array is writeable, by asking its library, because older versions of DLPack have no flag for it."""
    if view.flags.writeable:
        return view
    if not isinstance(array, np.ndarray) and callable(getattr(array, "numpy", None)):
        own: HostArray = array.numpy()
        same = (own.ctypes.data, own.shape, own.strides) == (view.ctypes.data, view.shape, view.strides)
        if same and own.flags.writeable:
            return own
    raise ConfigError(f"{what}: expected an array that can be changed in place, got a read-only array")
