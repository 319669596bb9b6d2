# SPDX-License-Identifier: Apache-2.0
"""Reads files of rows in several formats: arrays `ids` and `rows`, or the weight of another program's embedding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.pserver.exported import npz_file, parquet_file, safetensors_file
from paddle.pserver.exported.columns import PIECE, checked
from paddle.pserver.sparse.walk import TableRows

FORMATS: Mapping[str, ModuleType] = MappingProxyType(
    {"npz": npz_file, "safetensors": safetensors_file, "parquet": parquet_file}
)
"""Format -> the module with `SUFFIX`, `write`, `shapes` and `read`. An entry is a module."""

_PICKLES = (".pt", ".pth", ".bin", ".pkl", ".pickle")


def format_of(path: Path) -> ModuleType:
    """Return the module that reads a file's format, chosen by the file's suffix.

    Raises:
        ConfigError: no module reads the format; for a pickle, the message shows code that writes a supported format.
    """
    if path.suffix in _PICKLES:
        raise ConfigError(
            f"{path} is a pickle, and reading a pickle can run arbitrary code. Convert the "
            "weights to safetensors or npz first: "
            f"`numpy.savez({str(path.with_suffix('.npz'))!r}, **{{name: value.numpy() for name, "
            "value in model.state_dict().items()})`"
        )
    for module in FORMATS.values():
        if path.suffix == module.SUFFIX:
            return module
    known = ", ".join(module.SUFFIX for module in FORMATS.values())
    raise ConfigError(f"{path}: unknown file type; expected one of {known}")


def read_file(path: Path, key: str = "", *, is_foreign: bool = False) -> Iterator[TableRows]:
    """Yield the rows of a file in bounded pieces.

    Args:
        path: a file with `ids`, `rows` and optionally `ages` and `states`; or with a matrix whose row i has the id i.
        key: name of the matrix; required if there are several. If the file also has `ids`, these are the ids of its
            rows.
        is_foreign: whether another program wrote the file. If so, states are not read, and ids must be distinct.

    Raises:
        ConfigError: the file is invalid, has neither rows nor a matrix, or repeats an id, which is detected before the
            first piece.
    """
    module = format_of(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    shapes = module.shapes(path)
    names = _names(path, shapes, key, with_states=not is_foreign)
    lengths = {shapes[name][0] for name in names.values()}
    if len(lengths) > 1:
        raise ConfigError(f"{path}: expected arrays of equal length, got {shapes}")
    width = max(sum(shapes[name][1] for name in names.values() if shapes[name][1:]), 1)
    if is_foreign and len(shapes[names.get("ids", names["rows"])]) == 1:
        _check_distinct(path, module.read(path, {"ids": names["ids"]}, PIECE))
    start = 0
    for arrays in module.read(path, names, max(PIECE // width, 1)):
        n = len(arrays["rows"])
        ids = arrays.get("ids", np.arange(start, start + n))
        ages = arrays.get("ages", np.full(n, -1, np.int32))
        yield checked(TableRows(ids, arrays["rows"], ages, arrays.get("states")), str(path))
        start += n


def _names(
    path: Path, shapes: Mapping[str, tuple[int, ...]], key: str, *, with_states: bool
) -> dict[str, str]:
    """Return the names of the arrays to read from a file, and their meanings."""
    if not key and {"ids", "rows"} <= set(shapes):
        wanted = ("ids", "rows", "ages", "states") if with_states else ("ids", "rows", "ages")
        return {name: name for name in wanted if name in shapes}
    matrices = [name for name, shape in shapes.items() if len(shape) == 2 and key in ("", name)]
    if len(matrices) != 1:
        there = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ConfigError(
            f"{path}: expected arrays ids and rows, or a single matrix, but the file has {there}; to read "
            "one of several matrices, pass its name as key"
        )
    beside = [name for name, shape in shapes.items() if shape == shapes[matrices[0]][:1]]
    if "ids" in beside:
        return {"ids": "ids", "rows": matrices[0]}
    if beside and not key:
        raise ConfigError(
            f"{path}: the ids of {matrices[0]} could be {' or '.join(beside)}; name the arrays ids and rows, "
            f"or pass the key {matrices[0]} if row i has the id i"
        )
    return {"rows": matrices[0]}


def _check_distinct(path: Path, pieces: Iterator[Mapping[str, npt.NDArray[np.generic]]]) -> None:
    """Check that no id of a file is repeated. Raises ConfigError if an id is repeated."""
    ids = np.sort(np.concatenate([np.zeros(0, np.int8), *(piece["ids"] for piece in pieces)]))
    if (is_repeated := ids[1:] == ids[:-1]).any():
        raise ConfigError(
            f"{path}: id {ids[1:][is_repeated][0]} is repeated; write one row per id, such as the last one"
        )
