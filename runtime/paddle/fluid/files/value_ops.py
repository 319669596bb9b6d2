# SPDX-License-Identifier: Apache-2.0
"""save, load, save_combine, load_combine: operators that save and load variables in files, like `fluid.io`.

`load_inference_model` refuses programs that contain these operators.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from paddle.fluid.errors import FluidError
from paddle.fluid.files.variable_files import read_values, write_values
from paddle.ops.base.lod import lod_of, plain, with_lod
from paddle.ops.base.registry import operator
from paddle.ops.base.selected_rows import SelectedRows

_SAVE = {"overwrite": True, "save_as_fp16": False, "file_path": str}
_LOAD = {"load_as_fp16": False, "file_path": str}


@operator("save", "X+ ->", attrs=_SAVE, has_effect=True)
def save(x: Any, *, overwrite: bool, save_as_fp16: bool, file_path: str) -> tuple[()]:
    """Write one variable to a file; create its folder if necessary.

    Raises:
        FluidError: the file exists and overwrite is not set.
    """
    save_combine([x], overwrite=overwrite, save_as_fp16=save_as_fp16, file_path=file_path)
    return ()


@operator("save_combine", "X+* ->", attrs=_SAVE, has_effect=True)
def save_combine(x: list[Any], *, overwrite: bool, save_as_fp16: bool, file_path: str) -> tuple[()]:
    """Write several variables to one file, one after another; see `save` for the attributes."""
    if not overwrite and Path(file_path).exists():
        raise FluidError(f"{file_path} already exists: remove it, or set overwrite=True")
    write_values(file_path, [_half(each) for each in x] if save_as_fp16 else x)
    return ()


@operator("load", "-> Out+", attrs=_LOAD, has_effect=True)
def load(*, load_as_fp16: bool, file_path: str) -> Any:
    """Read a file that contains one variable, and return its value.

    Raises:
        ModelFileError: the file is missing or damaged, or contains several variables.
    """
    return _loaded(file_path, 1, load_as_fp16)[0]


@operator("load_combine", "-> Out+*", attrs={**_LOAD, "model_from_memory": False}, has_effect=True)
def load_combine(
    *, load_as_fp16: bool, file_path: str, model_from_memory: bool, names: dict[str, list[str]]
) -> list[Any]:
    """Return the values in a file that contains as many variables as the operator has outputs; see `load`."""
    if model_from_memory:
        raise FluidError(
            "load_combine: model_from_memory is not supported. Give the path of a file as file_path"
        )
    return _loaded(file_path, len(names["Out"]), load_as_fp16)


def _loaded(path: str, count: int, as_half: bool) -> list[Any]:
    values = read_values(path, count)
    return [_half(each) for each in values] if as_half else values


def _half(value: Any) -> Any:
    """Return a float array as float16; any other value, or selected rows, unchanged."""
    if isinstance(value, SelectedRows) or plain(value).dtype.kind != "f":
        return value
    return with_lod(plain(value).astype(np.float16), lod_of(value))
