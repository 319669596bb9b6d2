# SPDX-License-Identifier: Apache-2.0
"""Collects columns of rows in raw files until their number is known, which the header of the final file needs.

Each column is appended to a separate file, and later copied by the system, so that only one piece is in memory at a
time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.pserver.sparse.mixing import GAMMA, mix
from paddle.pserver.sparse.walk import TableRows
from paddle_node.contract.classes import NamedTuple

DTYPES: Mapping[str, np.dtype[np.generic]] = {
    "ids": np.dtype("<i8"),
    "rows": np.dtype("<f4"),
    "ages": np.dtype("<i4"),
    "states": np.dtype("<f4"),
}
PIECE = 1 << 20
"""Elements that are read from a file at once, or one row."""
MAX_WIDTH = 1 << 20
_COPY = 1 << 20


class Column(NamedTuple):
    """One column of a table's rows, of shape (n,) or (n, width), stored in a raw file."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    path: Path

    @property
    def nbytes(self) -> int:
        """The number of bytes in the column."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def copy_to(self, file: BinaryIO | _Writes) -> None:
        """Append the column's bytes to an open file."""
        with open(self.path, "rb") as source:
            while block := source.read(_COPY):
                file.write(block)

    def pieces(self, rows: int) -> Iterator[npt.NDArray[np.generic]]:
        """Yield the column as arrays of at most `rows` rows."""
        row = int(np.prod(self.shape[1:], dtype=np.int64))
        with open(self.path, "rb") as source:
            while len(block := np.fromfile(source, self.dtype, rows * row)):
                yield block.reshape(-1, *self.shape[1:])


class _Writes(Protocol):
    def write(self, data: bytes, /) -> object: ...


class Spool:
    """A collector of pieces of rows in temporary files. A context manager that removes the files on exit.

    Attributes:
        count: number of rows so far.
        digest: digest of these rows, see `digest_of`.
    """

    def __init__(self, folder: Path, width: int, states: int | None, dtype: str = "float32") -> None:
        """Start in an existing folder; `states`: state numbers per row, or None.

        `dtype`: one of `halves.ROW_DTYPES`.
        """
        self.count, self.digest = 0, 0
        self._dtypes = {**DTYPES, "rows": np.dtype(dtype).newbyteorder("<")}
        self._sizes = {"ids": (), "rows": (width,), "ages": ()} | (
            {} if states is None else {"states": (states,)}
        )
        self._paths = {name: folder / f".column-{os.getpid()}-{name}" for name in self._sizes}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._files = {n: self._stack.enter_context(path.open("wb")) for n, path in self._paths.items()}
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for path in self._paths.values():
            path.unlink(missing_ok=True)

    def add(self, rows: TableRows) -> None:
        """Append a piece. Raises ConfigError if a value is beyond the range of the rows' dtype."""
        if (dtype := self._dtypes["rows"]) != DTYPES["rows"]:
            rows = rows._replace(rows=_rounded(rows, dtype))
        for name, file in self._files.items():
            file.write(np.ascontiguousarray(getattr(rows, name), self._dtypes[name]).data)
        self.count += len(rows.ids)
        self.digest = (self.digest + digest_of(rows)) % (1 << 64)

    def columns(self) -> dict[str, Column]:
        """Return the collected columns by name, to be written to a file."""
        for file in self._files.values():
            file.flush()
        return {
            name: Column(self._dtypes[name], (self.count, *shape), self._paths[name])
            for name, shape in self._sizes.items()
        }


def _rounded(rows: TableRows, dtype: np.dtype[np.generic]) -> npt.NDArray[np.float32]:
    """Return values rounded to the nearest value of a narrower dtype."""
    largest = np.abs(rows.rows).max(axis=1, initial=0.0)
    if (is_beyond := largest > np.finfo(dtype).max).any():  # type: ignore[arg-type]
        raise ConfigError(
            f"row {rows.ids[is_beyond][0]} contains {largest[is_beyond][0]:g}, which is outside the range of "
            f"{dtype.name}; export with dtype float32"
        )
    return rows.rows.astype(dtype).astype(np.float32)


def digest_of(rows: TableRows) -> int:
    """Return a digest of ids, values and states that does not depend on the rows' order; ages are not included.

    Digests of disjoint pieces are added modulo 2^64.
    """
    total = mix(rows.ids.view(np.uint64) + np.uint64(GAMMA))
    for floats in (rows.rows, rows.states):
        if floats is not None:
            for column in np.ascontiguousarray(floats).view(np.uint32).T:
                total = mix(total ^ column)
    return int(total.sum(dtype=np.uint64)) if len(rows.ids) else 0


def checked(rows: TableRows, what: str) -> TableRows:
    """Convert rows from a file to the expected dtypes, after checking them; `what` names them in messages.

    Raises:
        ConfigError: shapes do not match, or a value is NaN or infinite.
    """
    n = len(rows.ids)
    if rows.ids.dtype.kind not in "iu" or rows.ids.ndim != 1 or rows.rows.ndim != 2 or len(rows.rows) != n:
        raise ConfigError(
            f"{what}: expected integer ids of shape (n,) and rows of shape (n, width), got {rows.ids.dtype} of shape "
            f"{rows.ids.shape} and rows of shape {rows.rows.shape}"
        )
    if n and int(rows.ids.max()) >= 1 << 63:
        raise ConfigError(f"{what}: id {rows.ids.max()} is beyond the range of int64")
    if rows.ages.shape != (n,) or rows.ages.dtype.kind not in "iu":
        raise ConfigError(
            f"{what}: expected integer ages of shape ({n},), got {rows.ages.dtype} of shape {rows.ages.shape}"
        )
    if rows.states is not None and (rows.states.ndim != 2 or len(rows.states) != n):
        raise ConfigError(
            f"{what}: expected a 2-D array of states with {n} rows, got shape {rows.states.shape}"
        )
    if any(each.dtype.kind not in "fiu" for each in (rows.rows, rows.states) if each is not None):
        raise ConfigError(f"{what}: expected numeric rows and states")
    if n and not -(1 << 31) <= int(rows.ages.min()) <= int(rows.ages.max()) < 1 << 31:
        raise ConfigError(f"{what}: ages from {rows.ages.min()} to {rows.ages.max()}: expected int32")
    with np.errstate(over="ignore"):
        values = rows.rows.astype(np.float32, copy=False)
        states = None if rows.states is None else rows.states.astype(np.float32, copy=False)
    if not np.isfinite(values).all() or (states is not None and not np.isfinite(states).all()):
        raise ConfigError(f"{what}: a value is NaN, infinite, or too large for float32")
    return TableRows(
        rows.ids.astype(np.int64, copy=False), values, rows.ages.astype(np.int32, copy=False), states
    )
