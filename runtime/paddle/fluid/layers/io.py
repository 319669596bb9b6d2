# SPDX-License-Identifier: Apache-2.0
"""Inputs of programs: `layers.data` (before Fluid 1.6), `fluid.data` (from 1.6), readers, and load."""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from paddle.fluid.errors import FluidError, answering
from paddle.fluid.files import value_ops as _value_ops  # noqa: F401 (registers load and save)
from paddle.fluid.layers.file_readers import (
    Preprocessor,
    ReaderVariable,
    batch,
    open_files,
    open_recordio_file,
    random_data_generator,
    shuffle,
)
from paddle.fluid.layers.plain import layer
from paddle.fluid.program.program import default_main_program
from paddle.fluid.program.variable import Variable, VarType
from paddle.fluid.reader import PyReader
from paddle.fluid.run.places import Place
from paddle.graph import unique_name
from paddle.graph.operator import script_line

__all__ = [
    "Preprocessor", "batch", "create_py_reader_by_data", "data", "double_buffer", "load", "open_files",
    "open_recordio_file", "py_reader", "random_data_generator", "read_file", "shuffle",
]  # fmt: skip


load = layer(
    "load(out, file_path, load_as_fp16=None)",
    "`out`, which each run reads from a file that save_vars or a `save` operator wrote",
    to="out=Out",
)


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: bool = True,
    dtype: npt.DTypeLike = "float32",
    lod_level: int = 0,
    type: VarType = VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """Declare an input of the program, to be fed by name; the same name and shape again return the same variable.

    Args:
        name: name of the variable, to be used as a key of the feed.
        shape: dimensions; None or -1: unknown.
        append_batch_size: whether to prepend the batch size, -1, to the shape; ignored if the shape contains an unknown
            dimension.
        dtype: dtype of the variable.
        lod_level: nesting depth of the sequences; 0 means none.
        type: type of the variable.
        stop_gradient: whether to compute no gradient for the variable.
    """
    sizes = _sizes(shape)
    has_batch = append_batch_size and all(size >= 0 for size in sizes)
    if has_batch:
        sizes = [-1, *sizes]
    block = default_main_program().global_block()
    variable = block.create_var(
        name, sizes, dtype, stop_gradient=stop_gradient, lod_level=lod_level, type=type, is_data=True
    )
    variable.has_batch, variable.origin = has_batch, script_line()
    return variable


def _sizes(shape: Sequence[int | None]) -> list[int]:
    """Return the sizes with -1 for each unknown one: None, or any number below 0."""
    return [-1 if size is None or size < 0 else int(size) for size in shape]


def sized_data(
    name: str, shape: Sequence[int | None], dtype: npt.DTypeLike = "float32", lod_level: int = 0
) -> Variable:
    """Declare an input of the program with exactly the given shape, to be fed by name (`fluid.data` of Fluid 1.6).

    None or -1 stands for the batch size.
    """
    return data(name, shape, append_batch_size=False, dtype=dtype, lod_level=lod_level)


class _Unread(PyReader):
    """A reader whose variables exist, but which is not read before `read_file` is called."""

    def __init__(self, feed_list: Sequence[Variable], capacity: int, name: str | None) -> None:
        super().__init__(feed_list, capacity, name=name)
        self._iterable = False


def py_reader(
    capacity: int,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[npt.DTypeLike],
    lod_levels: Sequence[int] | None = None,
    name: str | None = None,
    use_double_buffer: bool = True,
) -> PyReader:
    """Return a reader of batches from a Python function, with one value per shape; -1 stands for the batch size.

    `read_file` returns its variables. Its decorate_ methods set the source of batches, and `start()` begins a pass.
    After the last batch, a run raises `fluid.core.EOFException`; then call `reset()`.

    Raises:
        FluidError: shapes, dtypes and lod_levels differ in number.
    """
    levels = [0] * len(shapes) if lod_levels is None else list(lod_levels)
    if not len(shapes) == len(dtypes) == len(levels):
        raise FluidError(
            f"py_reader: got {len(shapes)} shapes, {len(dtypes)} dtypes and {len(levels)} "
            "lod_levels; give the same number of each"
        )
    block = default_main_program().global_block()
    known = name or unique_name.generate("py_reader")
    variables = [
        block.create_var(
            f"{known}.{at}", _sizes(shape), dtype, stop_gradient=True, lod_level=level, is_data=True
        )
        for at, (shape, dtype, level) in enumerate(zip(shapes, dtypes, levels, strict=True))
    ]
    for variable in variables:
        variable.origin = script_line()
    return _Unread(variables, capacity, known)


def create_py_reader_by_data(
    capacity: int, feed_list: Sequence[Variable], name: str | None = None, use_double_buffer: bool = True
) -> PyReader:
    """Return a reader that fills variables created by `data`; see `py_reader`."""
    return _Unread(feed_list, capacity, name)


def read_file(reader: PyReader | ReaderVariable) -> Variable | list[Variable]:
    """Read a reader's next batch in each run; return the batch's variable, or a list of variables."""
    variables = reader.append_read()
    return variables[0] if len(variables) == 1 else variables


def double_buffer(
    reader: PyReader | ReaderVariable, place: Place | None = None, name: str | None = None
) -> PyReader | ReaderVariable:
    """Return a reader that prefetches in a thread (for a py_reader, which always prefetches, the reader itself)."""
    return reader if isinstance(reader, PyReader) else reader.around("create_double_buffer_reader", {})


__getattr__ = answering(__name__, "paddle.fluid.layers")
