# SPDX-License-Identifier: Apache-2.0
"""A stand-in for cupy on machines without a GPU: numpy's results under cupy's refusals.

Put its folder on PYTHONPATH. As on a GPU, an array is never converted to numpy implicitly, arrays of the two
libraries do not mix in a function, an array of Python objects is refused, and sums and single items are arrays of
rank 0. It shows where a program mixes devices; it says nothing about functions that cupy lacks, or about speed.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

__version__ = "stand-in"
_FROM_HOST = {"array", "asarray", "ascontiguousarray", "asfortranarray"}  # these accept numpy's arrays


class ndarray:  # noqa: N801 (the name in cupy)
    """An array on the imagined GPU."""

    __slots__ = ("_host",)

    def __init__(self, host: Any) -> None:
        host = np.asarray(host)
        if host.dtype.kind not in "biufc":
            raise ValueError(f"Unsupported dtype {host.dtype}")
        self._host = host

    def get(self) -> Any:
        """Return a copy on the host."""
        return self._host.copy()

    def set(self, host: Any) -> None:
        """Copy an array of the host to here."""
        self._host[...] = host

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _called(getattr(ufunc, method), inputs, options)

    def __array_function__(self, function: Any, _: Any, args: Any, options: Any) -> Any:
        return _called(function, args, options)

    @property
    def base(self) -> Any:
        """The array whose memory this one shares; None if it has its own."""
        return self._host.base

    @property
    def T(self) -> ndarray:
        """The transpose."""
        return ndarray(self._host.T)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # no interface through which numpy reads memory
            raise AttributeError(name)
        found = getattr(self._host, name)
        return _Function(found) if callable(found) else _wrapped(found)

    def __getitem__(self, index: Any) -> Any:
        return _wrapped(self._host[_index(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self._host[_index(index)] = _bare(value)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self._host)))

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __index__(self) -> int:
        return int(self._host.__index__())

    def __float__(self) -> float:
        return float(self._host)

    def __repr__(self) -> str:
        return repr(self._host)

    def __format__(self, form: str) -> str:
        return format(self._host, form)

    __hash__ = None  # type: ignore[assignment]


def _operator(name: str) -> Callable[..., Any]:
    def call(self: ndarray, *others: Any) -> Any:
        if any(isinstance(other, np.ndarray) for other in others):
            raise TypeError(f"Unsupported type {np.ndarray}")
        result = getattr(self._host, name)(*map(_bare, others))
        if result is self._host:  # changed in place
            return self
        return result if result is NotImplemented else _wrapped(result)

    return call


_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
_COMPARED = "lt le gt ge eq ne neg pos abs invert"
for _name in [
    *(kind + each for each in _BINARY.split(" ") for kind in ("", "i", "r")),
    *_COMPARED.split(" "),
]:
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))


def _index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    return index._host if isinstance(index, ndarray) else index


def _bare(value: Any) -> Any:
    """The value with numpy's arrays in place of these; an array of numpy itself is refused."""
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {np.ndarray}")
    if isinstance(value, ndarray):
        return value._host
    if type(value) in (list, tuple):
        return type(value)(map(_bare, value))
    return value


def _wrapped(value: Any) -> Any:
    if isinstance(value, np.dtype | type):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(value)
    if isinstance(value, tuple) and any(isinstance(each, np.ndarray | np.generic) for each in value):
        parts = [_wrapped(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_wrapped(each) for each in value]
    return value


def _called(function: Any, args: Any, options: Any) -> Any:
    out = options.get("out")
    result = function(*map(_bare, args), **{name: _bare(value) for name, value in options.items()})
    if isinstance(out, ndarray):
        return out
    if isinstance(out, tuple) and len(out) == 1:
        return out[0]
    return _wrapped(result)


class _Function:
    """A function of numpy, or a bound method of an array."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *args: Any, **options: Any) -> Any:
        return _called(self._function, args, options)

    def __getattr__(self, name: str) -> Any:
        return _Function(getattr(self._function, name))


def _from_host(function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(array: Any, *args: Any, **options: Any) -> Any:
        if isinstance(array, ndarray):
            return _called(function, (array, *args), options)
        return ndarray(function(array, *args, **options).copy())

    return call


def _module(of: types.ModuleType, name: str) -> Any:
    found = getattr(of, name)
    if isinstance(found, types.ModuleType):
        inner = types.ModuleType(f"cupy.{name}")
        inner.__getattr__ = functools.partial(_module, found)  # type: ignore[method-assign]
        return inner
    if of is np and name in _FROM_HOST:
        return _from_host(found)
    return _Function(found) if callable(found) and not isinstance(found, type) else found


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _module(np, name)


def asnumpy(array: Any) -> Any:
    """Return the array on the host."""
    return array.get() if isinstance(array, ndarray) else np.asarray(array)


class _Runtime:
    CUDARuntimeError = RuntimeError

    def getDeviceCount(self) -> int:
        """Return the number of imagined GPUs."""
        return 1


class _Stream:
    ptr = 0

    def synchronize(self) -> None:
        """Everything is finished already."""


class _Cuda:
    runtime = _Runtime()

    def Device(self, _: int = 0) -> Any:
        """A context in which the imagined GPU is the current one."""
        return nullcontext()

    def get_current_stream(self) -> _Stream:
        """Return the stream of all work."""
        return _Stream()


cuda = _Cuda()
