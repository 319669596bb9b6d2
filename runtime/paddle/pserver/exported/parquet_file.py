# SPDX-License-Identifier: Apache-2.0
"""Reads and writes Parquet files with pyarrow, which only this format needs. See `formats`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.pserver.exported.columns import MAX_WIDTH, PIECE, Column

SUFFIX = ".parquet"


def _arrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow: install it with `pip install paddle-cluster[parquet]`, or use npz or safetensors"
        ) from None


def write(path: Path, columns: Mapping[str, Column]) -> None:
    """Write a Parquet file with one column per array; rows become lists of a fixed size."""
    arrow, parquet = _arrow()
    kinds = {np.dtype("<i8"): arrow.int64(), np.dtype("<i4"): arrow.int32(), np.dtype("<f4"): arrow.float32()}
    kinds[np.dtype("<f2")] = arrow.float16()
    fields = []
    for name, column in columns.items():
        kind = kinds[column.dtype]
        fields.append((name, arrow.list_(kind, column.shape[1]) if column.shape[1:] else kind))
    schema = arrow.schema(fields)
    widest = max(column.shape[1] if column.shape[1:] else 1 for column in columns.values())
    step = max(PIECE // max(widest, 1), 1)
    with parquet.ParquetWriter(path, schema) as writer:
        for arrays in zip(*(column.pieces(step) for column in columns.values()), strict=True):
            made = [
                arrow.FixedSizeListArray.from_arrays(arrow.array(array.reshape(-1)), array.shape[1])
                if array.ndim == 2
                else arrow.array(array)
                for array in arrays
            ]
            writer.write_table(arrow.Table.from_arrays(made, schema=schema))


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a file's columns; a list without a fixed size has width 0.

    Raises:
        ConfigError: the file cannot be read as Parquet.
    """
    arrow, parquet = _arrow()
    try:
        with parquet.ParquetFile(path) as file:
            count = file.metadata.num_rows
            found: dict[str, tuple[int, ...]] = {}
            for field in file.schema_arrow:
                if arrow.types.is_fixed_size_list(field.type):
                    found[field.name] = (count, field.type.list_size)
                elif arrow.types.is_list(field.type) or arrow.types.is_large_list(field.type):
                    found[field.name] = (count, 0)
                else:
                    found[field.name] = (count,)
            return found
    except (arrow.ArrowException, OSError) as error:
        raise ConfigError(f"cannot read {path} as Parquet: {error}") from None


def read(path: Path, names: Mapping[str, str], rows: int) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield columns, at most `rows` rows at a time; see `safetensors_file.read`."""
    arrow, parquet = _arrow()
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(rows, columns=list(names.values())):
                yield {called: _plain(batch.column(name), path) for called, name in names.items()}
    except (arrow.ArrowException, OSError) as error:
        raise ConfigError(f"cannot read {path} as Parquet: {error}") from None


def _plain(column: Any, path: Path) -> npt.NDArray[Any]:
    """Return a column as (n,) or (n, width)."""
    n = len(column)
    values = column.flatten() if hasattr(column, "flatten") and hasattr(column.type, "value_type") else column
    if column.null_count or values.null_count:
        raise ConfigError(f"{path}: expected no null values")
    found: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    if values is column:
        return found
    width = len(found) // max(n, 1)
    lengths = (
        {column.type.list_size}
        if hasattr(column.type, "list_size")
        else set(column.value_lengths().to_pylist())
    )
    if n and (lengths != {width} or not 0 < width <= MAX_WIDTH):
        raise ConfigError(
            f"{path}: expected rows of one width from 1 to {MAX_WIDTH}, got widths {sorted(lengths)[:5]}"
        )
    return found.reshape(n, width)
