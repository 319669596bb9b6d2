# SPDX-License-Identifier: Apache-2.0
"""Reads and writes npz files, numpy's archives of arrays, piece by piece. See `formats`."""

from __future__ import annotations

import contextlib
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.lib.format as npy
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.pserver.exported.columns import MAX_WIDTH, Column

SUFFIX = ".npz"
_NPY: Any = npy  # numpy has no annotations for it
_KINDS = "fiu"
_READ = 1 << 20
# RuntimeError: it is encrypted, or in an unknown way. OSError: a damaged bz2 stream, or a place before the file.
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,
    OSError,
)


def write(path: Path, columns: Mapping[str, Column]) -> None:
    """Write columns as arrays to an uncompressed npz file."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                head = {"descr": column.dtype.str, "fortran_order": False, "shape": column.shape}
                _NPY.write_array_header_1_0(file, head)
                column.copy_to(file)


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays in a file. Raises ConfigError if the file is invalid."""
    with _opened(path) as archive:
        found = {}
        for member in archive.namelist():
            with archive.open(member) as file:
                found[member.removesuffix(".npy")] = _any_head(file)[0]
        return found


def read(path: Path, names: Mapping[str, str], rows: int) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield arrays of the same length, `rows` rows at a time; see `safetensors_file.read`."""
    with _opened(path) as archive, contextlib.ExitStack() as stack:
        files = {called: stack.enter_context(archive.open(f"{name}.npy")) for called, name in names.items()}
        heads = {called: _head(file) for called, file in files.items()}
        length = max(shape[0] for shape, _ in heads.values())
        for start in range(0, length, rows):
            count = min(rows, length - start)
            yield {called: _piece(files[called], *heads[called], count) for called in names}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _DAMAGES as error:
        raise ConfigError(f"cannot read {path} as npz: {error}") from None


def _any_head(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = _NPY.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array has the unknown format version {version}")
    read_head = _NPY.read_array_header_1_0 if version == (1, 0) else _NPY.read_array_header_2_0
    found: tuple[tuple[int, ...], bool, np.dtype[Any]] = read_head(file)
    return found


def _head(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape, is_fortran, dtype = _any_head(file)
    if dtype.kind not in _KINDS or not 0 < len(shape) <= 2:
        raise ValueError(f"an array {shape} {dtype}: expected numbers in one or two dimensions")
    if is_fortran and len(shape) == 2:
        raise ValueError(
            f"an array of shape {shape} is in Fortran order; save numpy.ascontiguousarray(array)"
        )
    if min(shape) < 0 or (shape[1:] and not 0 < shape[1] <= MAX_WIDTH):
        raise ValueError(f"expected an array of 1 to {MAX_WIDTH} columns, got shape {shape}")
    return shape, dtype


def _piece(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    """Return the next rows."""
    nbytes = count * dtype.itemsize * (shape[1] if shape[1:] else 1)
    data = bytearray()
    while len(data) < nbytes and (more := file.read(min(nbytes - len(data), _READ))):
        data += more
    if len(data) < nbytes:
        raise EOFError("an array is truncated")
    return np.frombuffer(data, dtype).reshape(count, *shape[1:])
