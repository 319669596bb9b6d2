# SPDX-License-Identifier: Apache-2.0
"""Maps a trainer's parameters to the servers' memory layout, one slab (flat array) per server, and back.

Arrays from the user's program are checked before anything is sent: name, shape, dtype, row ids and NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, PserverError
from paddle.optim.sparse import check_rows
from paddle.optim.spec import ParameterSpec, RowGradient, rule_of
from paddle.pserver.sparse.serving import GrowingShare
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.wire.configuration import Configuration, check_names
from paddle.pserver.wire.message import CHUNK, Section, chunk_count, chunk_span
from paddle.pserver.wire.placement import RowShare, ServerShare, place
from paddle_node.contract.classes import NamedTuple

Array = npt.NDArray[np.float32]


class SlabPiece(NamedTuple):
    """Equally spaced blocks of a parameter that are contiguous in a chunk of a slab.

    Attributes:
        here: the slice of the chunk that these blocks occupy.
        there: the slice of the parameter that the first block occupies.
        step: distance between blocks in the parameter.
        blocks: the number of blocks; all are of one size.
    """

    name: str
    here: slice
    there: slice
    step: int = 0
    blocks: int = 1

    def of(self, flat: Array) -> Array:
        """Return several blocks as a view (count, block) of a whole parameter (size,)."""
        block = (self.here.stop - self.here.start) // self.blocks
        return np.ndarray(
            (self.blocks, block), np.float32, flat.data, 4 * self.there.start, (4 * self.step, 4)
        )


class Layout:
    """The mapping between parameters and the servers' slabs.

    Attributes:
        parameters: the parameters that are sent, by name; static ones are not.
        growing: growing tables, by name.
        shares: the shares of the servers, by index in the trainers' list; those of idle servers are empty.
        sizes: elements of each server's slab.
        used: the indices of the servers that are not idle.
    """

    def __init__(
        self,
        parameters: Sequence[ParameterSpec],
        num_dense: int,
        num_sparse: int,
        *,
        whole: bool = False,
        growing: Sequence[TableSpec] = (),
        used: Sequence[int] | None = None,
    ) -> None:
        """Place the parameters; see `place`. `used`: see `Configuration.used`; None means all servers.

        Raises:
            ConfigError: a name occurs twice, or a share is too large.
        """
        check_names([*parameters, *(table.parameter for table in growing)])
        self.parameters = {p.name: p for p in parameters if not p.static}
        self._size_of = {name: p.size for name, p in self.parameters.items()}
        self.growing = {table.name: table for table in growing}
        placed = place(parameters, num_dense, num_sparse, whole=whole, growing=growing)
        self.used = range(len(placed)) if used is None else used
        by_index = dict(zip(self.used, placed, strict=True))
        self.shares = [by_index.get(index, ServerShare((), ())) for index in range(max(self.used) + 1)]
        self.sizes = [share.slab_size for share in self.shares]
        self._pieces = [_pieces_of(share) for share in self.shares]
        names = {p.name for p in self.parameters.values() if p.sparse} | self.growing.keys()
        self._holders = {name: self._holders_of(name) for name in names}

    @classmethod
    def of(cls, model: Configuration) -> Layout:
        """Return the layout of a model."""
        whole = rule_of(model.optimizer).needs_whole
        dense, sparse = model.num_dense, model.num_sparse
        return cls(model.parameters, dense, sparse, whole=whole, growing=model.tables, used=model.used)

    def tables(self, name: str) -> list[tuple[int, RowShare]]:
        """Return (server index, its share of the rows) for each server that has rows of a sparse parameter."""
        found = [(i, share) for i, server in enumerate(self.shares) for share in server.tables]
        return [(i, share) for i, share in found if share.parameter.name == name]

    def holders(self, name: str) -> list[tuple[int, RowShare | GrowingShare]]:
        """Return (server index, share of rows) for each server with rows of a sparse parameter or growing table."""
        return self._holders.get(name, [])

    def scatter(self, index: int, slab: Array, views: Mapping[str, Array]) -> None:
        """Copy the values that one server sent into whole parameters (size,); leave omitted parameters unchanged."""
        for part in self.shares[index].dense:
            if part.parameter.name in views:
                part.scatter(slab, views[part.parameter.name])

    def num_chunks(self, index: int) -> int:
        """Return the number of chunks of one server's slab."""
        return len(self._pieces[index])

    def chunk(
        self, index: int, number: int, flat: Mapping[str, Array], *, check: bool = False
    ) -> tuple[Section, bool]:
        """Return one chunk for a server, and whether it is a view; the values of omitted parameters are 0.

        Raises:
            ConfigError: with `check`, a gradient contains NaN or infinity.
        """
        view = self.home(index, number, flat)
        section = Section("", self._assembled(index, number, flat) if view is None else view)
        if check and not section.is_finite:
            for piece in self._pieces[index][number]:
                if not np.isfinite(section.array[piece.here]).all():
                    raise ConfigError(
                        f"gradient of parameter {piece.name} contains NaN or infinity; nothing was changed"
                    )
        return section, view is not None

    def spread(self, index: int, number: int, values: Array, views: Mapping[str, Array]) -> None:
        """Copy a chunk of values from one server into whole parameters (size,); leave omitted parameters unchanged."""
        for piece in self._pieces[index][number]:
            view = views.get(piece.name)
            if view is None:
                continue
            if piece.blocks == 1:
                view[piece.there] = values[piece.here]
            else:
                blocks = piece.of(view)
                blocks[...] = values[piece.here].reshape(blocks.shape)

    def home(self, index: int, number: int, views: Mapping[str, Array]) -> Array | None:
        """Return the view of whole parameters (size,) that a server's chunk covers, or None if it is not contiguous."""
        (first, *more) = self._pieces[index][number]
        if more or first.blocks > 1 or first.name not in views:
            return None
        return views[first.name][first.there]

    def parameter(self, name: str) -> ParameterSpec:
        """Return the parameter with this name. Raises ConfigError if the servers do not have it."""
        if name in self.growing:
            return self.growing[name].parameter
        if name not in self.parameters:
            known = ", ".join([*self.parameters, *self.growing])
            raise ConfigError(f"parameter {name!r} is not on the pservers; known: {known}")
        return self.parameters[name]

    def flat(self, name: str, arrays: Mapping[str, Array], what: str, *, check: bool = True) -> Array:
        """Check one parameter's array, with `check` also for NaN and infinity, and return it as (size,) float32.

        Raises:
            ConfigError: the array is missing, has a different shape or dtype, or is not finite.
        """
        if name not in arrays:
            raise ConfigError(f"{what} of parameter {name} is missing")
        array = np.ascontiguousarray(self._checked(name, arrays[name], what))
        if array.ndim != 1:
            array = array.reshape(-1)
        if not check:
            return array
        # Checking a sum is far faster than checking every element; only a sum that is not finite needs the full check.
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(array.sum()) or np.isfinite(array).all()
        if not finite:
            raise ConfigError(f"{what} of parameter {name} contains NaN or infinity; nothing was sent")
        return array

    def views(self, out: Mapping[str, Array]) -> dict[str, Array]:
        """Check the arrays to fill, and return each as a view (size,).

        Raises:
            ConfigError: an array cannot be filled.
        """
        views = {}
        for name, array in out.items():
            self._checked(name, array, "out array")
            if not array.flags.c_contiguous or not array.flags.writeable:
                raise ConfigError(f"out array of parameter {name}: expected a writeable, C-contiguous array")
            views[name] = array.reshape(-1)
        return views

    def rows(self, name: str, gradient: RowGradient) -> RowGradient:
        """Check and return the gradient of a sparse parameter or growing table.

        Raises:
            ConfigError: the gradient's row ids or values are invalid.
        """
        if name in self.growing:
            try:
                GrowingShare(self.growing[name], 0, 1).check(gradient)
            except PserverError as error:
                raise ConfigError(str(error)) from None
            return gradient
        parameter = self.parameter(name)
        what = f"gradient of parameter {name}"
        check_rows(gradient.rows, parameter.shape[0], what)
        values = gradient.values
        expected = (len(gradient.rows), parameter.shape[1])
        if values.shape != expected or values.dtype != np.float32:
            raise ConfigError(f"{what}: expected {expected} float32, got {values.shape} {values.dtype}")
        if not np.isfinite(values).all():
            raise ConfigError(f"{what} contains NaN or infinity; nothing was sent")
        return gradient

    def _assembled(self, index: int, number: int, flat: Mapping[str, Array]) -> Array:
        span = chunk_span(number, self.sizes[index])
        part = np.empty(span.stop - span.start, np.float32)
        for piece in self._pieces[index][number]:
            array = flat.get(piece.name)
            if array is None:
                part[piece.here] = 0.0
            elif piece.blocks == 1:
                part[piece.here] = array[piece.there]
            else:
                blocks = piece.of(array)
                part[piece.here].reshape(blocks.shape)[...] = blocks
        return part

    def _holders_of(self, name: str) -> list[tuple[int, RowShare | GrowingShare]]:
        found = [(i, share) for i, server in enumerate(self.shares) for share in server.growing]
        return [*self.tables(name), *((i, share) for i, share in found if share.spec.name == name)]

    def _checked(self, name: str, array: Any, what: str) -> Array:
        if self._size_of.get(name) == array.size and array.dtype == np.float32:
            fit: Array = array
            return fit
        parameter = self.parameter(name)
        if name in self.growing:
            raise ConfigError(
                f"{what} of {name}: a growing table cannot be read as a whole; look up its rows by id"
            )
        raise ConfigError(
            f"{what} of parameter {name}: expected {parameter.shape} float32, got {array.shape} {array.dtype}"
        )


def _pieces_of(share: ServerShare) -> list[list[SlabPiece]]:
    """Return the pieces of each chunk in a server's slab."""
    pieces: list[list[SlabPiece]] = [[] for _ in range(chunk_count(share.slab_size))]
    for dense in share.dense:
        for start, stop, at in dense.runs():
            for number in range(start // CHUNK, chunk_count(stop)):
                low, high = max(start, number * CHUNK), min(stop, (number + 1) * CHUNK)
                here = slice(low - number * CHUNK, high - number * CHUNK)
                there = slice(at + low - start, at + high - start)
                _append(pieces[number], SlabPiece(dense.parameter.name, here, there))
    return pieces


def _append(pieces: list[SlabPiece], block: SlabPiece) -> None:
    """Add a block to the pieces of a chunk: to the last piece if the block continues it."""
    if pieces and pieces[-1].name == block.name:
        last = pieces[-1]
        size, count = last.here.stop - last.here.start, last.blocks
        step = last.step if count > 1 else block.there.start - last.there.start
        is_next = block.there.start == last.there.start + count * step
        if is_next and size == count * (block.here.stop - block.here.start):
            here = slice(last.here.start, block.here.stop)
            pieces[-1] = SlabPiece(block.name, here, last.there, step, count + 1)
            return
    pieces.append(block)
