# SPDX-License-Identifier: Apache-2.0
"""Reader layers: they open recordio files or create random data, and shuffle, batch and preprocess it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidError, FluidTypeError, RunError
from paddle.fluid.files.readers import FileReader
from paddle.fluid.program.block import Block
from paddle.fluid.program.bodies import begin, end
from paddle.fluid.program.program import default_main_program, default_startup_program
from paddle.fluid.program.variable import Variable, VarType
from paddle.fluid.run.scope import global_scope
from paddle.graph import unique_name
from paddle_node.contract.classes import dataclass

__all__ = ["Preprocessor", "batch", "open_files", "open_recordio_file", "random_data_generator", "shuffle"]

Shapes = Sequence[Sequence[int] | int]


@dataclass(frozen=True)
class Field:
    """The shape, dtype and LoD level of one value in a reader's batch."""

    shape: tuple[int, ...]
    dtype: str
    lod_level: int


class ReaderVariable:
    """A reader in a program, to be passed to `read_file`; its startup program must run first.

    After the last batch, a run raises `fluid.core.EOFException`; `reset` starts the next pass.

    Attributes:
        name: the name of the reader's variable.
        fields: the values of a batch.
    """

    def __init__(self, name: str, fields: Sequence[Field], persistable: bool) -> None:
        self.name, self.fields = name, tuple(fields)
        self.holder = _holder(default_main_program().global_block(), name, persistable)
        # The scope has the reader of the startup program, which owns the readers that wrap it.
        self._first = name

    def around(self, type: str, attrs: dict[str, Any], **inputs: Any) -> ReaderVariable:
        """Append an operator that wraps this reader in a new reader, and return the new reader."""
        made = ReaderVariable(unique_name.generate(type), self.fields, persistable=False)
        made._first = self._first
        default_main_program().global_block().append_op(
            type, {"UnderlyingReader": self.holder, **inputs}, {"Out": made.holder}, attrs
        )
        return made

    def append_read(self) -> list[Variable]:
        """Append the operator that reads the next batch; return the variables that it fills."""
        block = default_main_program().global_block()
        variables = [
            block.create_var(
                unique_name.generate(f"{self.name}.out"),
                field.shape,
                field.dtype,
                stop_gradient=True,
                lod_level=field.lod_level,
                is_data=True,
            )
            for field in self.fields
        ]
        block.append_op("read", {"Reader": self.holder}, {"Out": variables})
        return variables

    def reset(self) -> None:
        """Start the next pass.

        Raises:
            RunError: the startup program has not run in the current scope.
        """
        found = global_scope().get(self._first) if global_scope().has(self._first) else None
        if not isinstance(found, FileReader):
            raise RunError(f"{self._first!r} is not open in this scope: run the startup program first")
        found.reset()


def open_recordio_file(
    filename: str,
    shapes: Shapes,
    lod_levels: Sequence[int],
    dtypes: Sequence[npt.DTypeLike],
    pass_num: int = 1,
    for_parallel: bool = True,
) -> ReaderVariable:
    """Return a reader of the batches in a recordio file that `recordio_writer` created; see `open_files`."""
    return _opened(
        "create_recordio_file_reader", {"filename": str(filename)}, shapes, lod_levels, dtypes, pass_num
    )


def open_files(
    filenames: Sequence[str] | str,
    shapes: Shapes,
    lod_levels: Sequence[int],
    dtypes: Sequence[npt.DTypeLike],
    thread_num: int | None = None,
    buffer_size: int | None = None,
    pass_num: int = 1,
    is_test: bool | None = None,
) -> ReaderVariable:
    """Return a reader of the batches in several recordio files, in the order of the list.

    Args:
        filenames: paths; contents are checked when they are read.
        shapes: the shape of each value of a batch; -1 means unknown.
        lod_levels: depth of each value's sequences.
        dtypes: the dtype of each value.
        thread_num: ignored: one thread prefetches.
        buffer_size: number of prefetched batches.
        pass_num: number of times that the files are read.
        is_test: ignored: batches always come in the order of the files.
    """
    names = [filenames] if isinstance(filenames, str) else [str(each) for each in filenames]
    attrs = {"file_names": names, "buffer_size": buffer_size or 4}
    return _opened("open_files", attrs, shapes, lod_levels, dtypes, pass_num)


def random_data_generator(
    low: float, high: float, shapes: Shapes, lod_levels: Sequence[int], for_parallel: bool = True
) -> ReaderVariable:
    """Return an endless reader of random float32 arrays with the given shapes and values in [low, high), for tests.

    Raises:
        FluidError: a dimension is unknown.
    """
    if any(size < 1 for shape in map(_sizes, shapes) for size in shape):
        raise FluidError(
            f"random_data_generator: shapes: every dimension must be 1 or more, got {list(shapes)}"
        )
    attrs = {"low": float(low), "high": float(high)}
    return _opened("create_random_data_generator", attrs, shapes, lod_levels, ["float32"] * len(shapes), 1)


def shuffle(reader: ReaderVariable, buffer_size: int) -> ReaderVariable:
    """Return a reader that shuffles batches within a buffer; Python's `random.seed(n)` makes it repeatable."""
    return _file_reader("shuffle", reader).around("create_shuffle_reader", {"buffer_size": int(buffer_size)})


def batch(reader: ReaderVariable, batch_size: int) -> ReaderVariable:
    """Return a reader that joins `batch_size` batches along the first axis, and drops an incomplete last group."""
    if batch_size < 1:
        raise FluidError(f"batch: batch_size: expected at least 1, got {batch_size}")
    return _file_reader("batch", reader).around("create_batch_reader", {"batch_size": int(batch_size)})


class Preprocessor:
    """A reader that applies a block of layers to each batch of another reader.

    preprocessor = fluid.layers.Preprocessor(reader)
    with preprocessor.block():
        image, label = preprocessor.inputs()
        preprocessor.outputs(image / 2, label)
    image, label = fluid.layers.read_file(preprocessor())
    """

    def __init__(self, reader: ReaderVariable, name: str | None = None) -> None:
        self._reader = _file_reader("Preprocessor", reader)
        self._block: Block | None = None
        self._sources: list[Variable] = []
        self._sinks: list[Variable] = []
        self._made: ReaderVariable | None = None

    @contextmanager
    def block(self) -> Iterator[None]:
        """Collect the layers for a batch.

        Raises:
            FluidError: `inputs` or `outputs` was not called inside.
        """
        self._block = begin()
        yield
        body = end(self._block)
        self._block = None
        if not self._sources or not self._sinks:
            raise FluidError("Preprocessor: call inputs() and outputs() inside block()")
        sources = [variable.name for variable in self._sources]
        outside = [name for name in body.reads if name not in sources]
        attrs = {
            "sub_block": body.idx,
            "source_var_names": sources,
            "sink_var_names": [variable.name for variable in self._sinks],
        }
        self._made = self._reader.around(
            "create_custom_reader", attrs, X=[body.outer.var(name) for name in outside]
        )
        self._made.fields = tuple(
            Field(tuple(each.shape), str(each.dtype), each.lod_level) for each in self._sinks
        )

    def inputs(self) -> list[Variable]:
        """Return the variables of the batch to preprocess; only inside `block`."""
        block = self._inside("inputs")
        self._sources = [
            block.create_var(
                unique_name.generate("preprocessor_source"),
                field.shape,
                field.dtype,
                stop_gradient=True,
                lod_level=field.lod_level,
            )
            for field in self._reader.fields
        ]
        return self._sources

    def outputs(self, *outs: Variable) -> None:
        """Declare the variables of the preprocessed batch; only inside `block`."""
        self._inside("outputs")
        self._sinks = list(outs)

    def __call__(self) -> ReaderVariable:
        """Return the reader of the new batches."""
        if self._made is None:
            raise FluidError("Preprocessor: define its block() first")
        return self._made

    def _inside(self, method: str) -> Block:
        if self._block is None:
            raise FluidError(f"Preprocessor.{method}: call it inside `with preprocessor.block():`")
        return self._block


def _opened(
    type: str,
    attrs: dict[str, Any],
    shapes: Shapes,
    lod_levels: Sequence[int],
    dtypes: Sequence[npt.DTypeLike],
    pass_num: int,
) -> ReaderVariable:
    if not len(shapes) == len(lod_levels) == len(dtypes):
        raise FluidError(
            f"{type}: {len(shapes)} shapes, {len(lod_levels)} lod_levels and {len(dtypes)} "
            "dtypes; give the same number of each"
        )
    names = [np.dtype(VarType.of(dtype).numpy).name for dtype in dtypes]
    fields = [
        Field(_sizes(shape), dtype, level)
        for shape, dtype, level in zip(shapes, names, lod_levels, strict=True)
    ]
    made = ReaderVariable(unique_name.generate(type), fields, persistable=True)
    block = default_startup_program().global_block()
    described = {
        "shape_concat": [size for field in fields for size in field.shape],
        "lod_levels": list(lod_levels),
        "ranks": [len(field.shape) for field in fields],
        "dtypes": names,
    }
    block.append_op(type, {}, {"Out": _holder(block, made.name, True)}, {**attrs, **described})
    if pass_num > 1:
        return made.around("create_multi_pass_reader", {"pass_num": int(pass_num)})
    return made


def _file_reader(layer: str, reader: Any) -> ReaderVariable:
    if not isinstance(reader, ReaderVariable):
        raise FluidTypeError(
            f"{layer}: expected a reader from open_files or a similar layer, got {reader!r}; for a py_reader use "
            f"paddle.reader.shuffle and paddle.batch"
        )
    return reader


def _holder(block: Block, name: str, persistable: bool) -> Variable:
    return block.create_var(name, persistable=persistable, stop_gradient=True, type=VarType.READER)


def _sizes(shape: Sequence[int] | int) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(size) for size in shape)
