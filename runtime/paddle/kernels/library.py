# SPDX-License-Identifier: Apache-2.0
"""The loader of the compiled kernels: finds this platform's library, verifies it, and binds its functions.

If no library matches, `reason` gives the cause in one line, and the plain form of every kernel is used.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_log = logging.getLogger(__name__)

FOLDER = Path(__file__).resolve().parent
_MISSING = "is missing"
BUILT = "built"  # folder of the libraries, next to the sources

ABI = 1
"""Incremented when the lookup or the calling convention of functions changes."""

FLAGS = (
    "-std=gnu11",
    "-O3",
    "-ffp-contract=off",  # a product and a sum are two roundings, as in numpy
    "-fno-math-errno",  # or a square root is a call and not an instruction; results are the same
    "-fno-trapping-math",
    "-fno-strict-aliasing",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror=implicit-function-declaration",
)
_V2 = ("-msse4.2", "-mpopcnt", "-mcx16")
_V3 = (*_V2, "-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mf16c", "-mlzcnt", "-mmovbe")
_V4 = (*_V3, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl")
LEVELS: Mapping[str, Mapping[int, tuple[str, ...]]] = {
    "x86_64": {2: _V2, 3: _V3, 4: _V4},  # spelled out: -march=x86-64-v3 is younger than many a compiler
    "aarch64": {1: ()},
}
"""Machine -> speed levels, slowest first, with their compiler flags. `level.c` tells which a processor has."""

_TYPES = {
    "p": ctypes.c_void_p,
    "n": ctypes.c_ssize_t,
    "i": ctypes.c_int,
    "u": ctypes.c_uint32,
    "q": ctypes.c_uint64,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}


class Kernels:
    """The C functions of a set of kernels, by name: `Kernels(add="ppn", sum="pn:q").loaded.add(...)`.

    An argument is one letter: p address, n size or any signed 64-bit number, i int, u uint32, q uint64, f float32, d
    float64. A letter after a colon is the type of the result; without it, there is no result. Calls release the
    interpreter's lock.
    """

    def __init__(self, **signatures: str) -> None:
        self._signatures = signatures

    @functools.cached_property
    def loaded(self) -> Any:
        """The library's functions as attributes of an object; None if no library fits this machine.

        Loaded on first use.
        """
        return self.at_level(level()) if level() else None

    def at_level(self, number: int) -> Any:
        """Return the functions of one speed level, for tests; `number` must be at most `level()`."""
        found = SimpleNamespace()
        for name, signature in self._signatures.items():
            function = getattr(_library().handle, f"{name}_v{number}")
            arguments, _, result = signature.partition(":")
            function.argtypes = [_TYPES[letter] for letter in arguments]
            function.restype = _TYPES[result] if result else None
            setattr(found, name, function)
        return found


def address(
    array: npt.NDArray[Any], dtype: np.dtype[Any] | type, size: int | None = None, *, written: bool = False
) -> int:
    """Return the address of a C-contiguous, aligned array, for a kernel.

    Args:
        dtype: the dtype that the kernel expects.
        size: the number of elements that the kernel assumes; None if the caller passes the array's own size.
        written: whether the kernel writes to an array that the caller did not create.

    Raises:
        ValueError: the array has a different dtype or size, or is strided, unaligned or, if written, read-only.
    """
    flags = array.flags
    if written and not flags.writeable:
        raise ValueError(f"a kernel cannot change a read-only array: {array.shape} {array.dtype}")
    if array.dtype != dtype or not flags.c_contiguous or not flags.aligned or size not in (None, array.size):
        raise ValueError(
            f"a kernel needs {'' if size is None else f'{size} '}aligned, contiguous {dtype}, got "
            f"{array.shape} {array.dtype} with strides {array.strides}"
        )
    found: int = array.__array_interface__["data"][0]
    return found


def level() -> int:
    """Return the speed level of the functions in use; 0 means none, the plain forms are used."""
    return _library().level


def levels() -> list[int]:
    """Return the speed levels that both the library and this processor support, slowest first."""
    return [number for number in LEVELS.get(os.uname().machine, {}) if number <= level()]


def reason() -> str:
    """Return the reason why the plain forms are used, in one line; empty if the compiled forms are used."""
    return _library().reason


def target() -> str:
    """Return the platform that a library must be compiled for, such as linux-x86_64-gnu."""
    try:
        is_glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):  # musl does not have this name
        is_glibc = False
    return f"{sys.platform}-{os.uname().machine}-{'gnu' if is_glibc else 'musl'}"


def library_name(target: str) -> str:
    """Return the file name of the library compiled from these sources and flags for a platform."""
    return f"{target}-{digest()}.so"


def sources() -> list[Path]:
    """Return the paths of all C sources and headers, which the digest covers."""
    return sorted(path for path in FOLDER.iterdir() if path.suffix in (".c", ".h"))


@functools.cache
def digest() -> str:
    """Return a digest that identifies a library: of its sources, compiler flags and ABI number."""
    state = hashlib.blake2b(f"{ABI} {FLAGS} {LEVELS}".encode(), digest_size=12)
    for path in sources():
        content = path.read_bytes()
        state.update(f"\n{path.name} {len(content)}\n".encode())
        state.update(content)
    return state.hexdigest()


def is_usable(path: Path) -> bool:
    """Return whether a library was compiled from these sources and this machine can load it."""
    return os.path.isfile(path) and _opened(path).handle is not None


class _Library:
    """The library that was found, or the reason why there is none."""

    def __init__(self, handle: Any, level: int, reason: str) -> None:
        self.handle, self.level, self.reason = handle, level, reason


@functools.cache
def _library() -> _Library:
    if FOLDER.is_dir():
        found = _opened(FOLDER / BUILT / library_name(target()))
    else:
        found = _Library(None, 0, f"no compiled kernels: {FOLDER} is in an archive")
    if found.reason:
        # before a job with servers starts, a missing library is reported once for all processes
        is_reported = _MISSING in found.reason and {"PADDLE_JOB_ID", "PADDLE_PSERVERS"} <= os.environ.keys()
        level = logging.INFO if is_reported else logging.WARNING
        _log.log(level, "%s; slower code in Python and NumPy is used", found.reason)
    return found


def _opened(path: Path) -> _Library:
    try:
        handle = ctypes.CDLL(str(path))
        handle.paddle_kernels_digest.restype = ctypes.c_char_p
        made_from = handle.paddle_kernels_digest().decode()
    except (OSError, AttributeError) as error:
        why = f"cannot load {path.name}: {error}" if os.path.exists(path) else f"{path.name} {_MISSING}"
        return _Library(None, 0, f"no compiled kernels: {why}; run `python -m paddle.kernels.build`")
    if made_from != digest():
        return _Library(
            None, 0, f"no compiled kernels: {path.name} was built from different sources ({made_from})"
        )
    runs = handle.paddle_kernels_level()
    number = max((each for each in LEVELS[os.uname().machine] if each <= runs), default=0)
    return _Library(
        handle, number, "" if number else "no compiled kernels: the processor is older than x86-64-v2"
    )
