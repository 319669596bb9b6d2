# SPDX-License-Identifier: Apache-2.0
"""Stores the parameters of one server with their optimizers, and applies batches to them.

Dense blocks of all parameters are stored in one array, the slab; gradients and values are also sent as slabs. A batch
is applied completely or not at all, because all of it is checked first. The version is the number of applied batches
and never decreases.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import DiskError, PserverError
from paddle.optim.dense import DenseUpdater
from paddle.optim.learning_rate import JobRates, StepRates
from paddle.optim.spec import OptimizerSpec, RowGradient, optimizer_of
from paddle.pserver.sparse.serving import GrowingShare, ServedTable
from paddle.pserver.sparse.slabs import RowMemoryError
from paddle.pserver.store.dense_step import DenseStep, DoubleBuffer
from paddle.pserver.store.gradient import Gradient, NonFiniteGradient, Slab
from paddle.pserver.store.observer import UNWATCHED, Elements, Watch
from paddle.pserver.store.table import Table
from paddle.pserver.wire.arithmetic import AT_ONCE_BYTES
from paddle.pserver.wire.message import MAX_FRAME_BYTES, Section, chunk_count, chunk_span, part_span
from paddle.pserver.wire.placement import ServerShare
from paddle.pserver.wire.shared_memory import SharedArray

_NO_MEMORY = MemoryError, RowMemoryError
_CUTS = *_NO_MEMORY, DiskError


class Store:
    """The parameters of one server, zero until set, with their optimizers. Not thread-safe; it has its own threads.

    Attributes:
        updaters: one for each part of `share.dense`.
        tables: the rows of sparse parameters on this server, by name.
        growing: growing tables, by name.
        num_chunks: number of chunks of the slab.
        failure: why a batch was applied only in part, or empty if none was.
        shrunk_at: batch after which growing tables were last shrunk.
        is_plain: whether `add` returns new values, because the rule has no state and a step can be undone.
    """

    def __init__(self, share: ServerShare, optimizer: OptimizerSpec, cores: int | None = None) -> None:
        """Allocate the parameters.

        Args:
            cores: cores that add large gradients; None means those of this process, up to a limit.

        Raises:
            ConfigError: the optimizer cannot update one of the parameters.
        """
        self.share, self.optimizer = share, optimizer
        self.version = 0
        self.num_samples = 0
        self.pass_id = 0
        self.pass_version = 0
        self.shrunk_at = -1
        self.failure = ""
        self._watch: Watch = UNWATCHED
        grown = [part.spec.parameter for part in share.growing]
        cut = [*(part.parameter for part in share.dense), *(part.parameter for part in share.tables)]
        self._schedule = JobRates(optimizer, [*cut, *grown])
        self._rates = StepRates(0.0, {})
        self._slabs = DoubleBuffer(share.slab_size)
        self._step, self._step_samples = DenseStep(self._slabs, share.dense, optimizer, cores), 0
        self.num_chunks, self.is_plain = chunk_count(share.slab_size), self._step.is_plain
        self.updaters = [
            DenseUpdater(optimizer_of(part.parameter, optimizer), part.parameter, part.stop - part.start)
            for part in share.dense
        ]
        self._starts = [part.start for part in share.dense]
        self.tables = {
            part.parameter.name: Table(part, optimizer_of(part.parameter, optimizer)) for part in share.tables
        }
        self.growing = {part.spec.name: self.new_table(part) for part in share.growing}

    def new_table(self, share: GrowingShare) -> ServedTable:
        """Return an empty growing table with its optimizer. Raises ConfigError if it cannot update single rows."""
        return ServedTable(share, optimizer_of(share.spec.parameter, self.optimizer))

    def table(self, name: str) -> Table:
        """Return the rows of one sparse parameter.

        Raises:
            PserverError: this server has no rows of a sparse parameter with this name.
        """
        if name not in self.tables:
            raise PserverError(f"unknown sparse parameter {name!r}; known: {sorted(self.tables)}")
        return self.tables[name]

    def current(self, name: str, start: int, count: int) -> npt.NDArray[np.float32]:
        """Return rows of a sparse parameter; see `Table.current`. Raises PserverError like `table`."""
        return self.table(name).current(start, count, self._current_rates().of(name))

    def rows_of(self, name: str) -> Table | ServedTable:
        """Return the sparse parameter's table or the growing table with this name.

        Raises:
            PserverError: see `table`.
        """
        return self.growing[name] if name in self.growing else self.table(name)

    @property
    def slab(self) -> Slab:
        """All dense blocks as one array (size,) float32, not copied."""
        return self._slabs.now

    @property
    def slab_number(self) -> int:
        """The index of the current slab among the arrays of `share_slabs`."""
        return self._slabs.number

    def share_slabs(self) -> list[SharedArray]:
        """Return the memory whose two arrays alternately contain the slab.

        Other processes can map it, but must not write to it.

        Raises:
            MemoryError: the memory cannot be shared.
        """
        return self._slabs.share()

    def be_watched(self, watch: Watch) -> None:
        """Add an observer, which is notified before each change from now on."""
        self._watch = watch
        for table in self.tables.values():
            table.watch = watch

    def set_dense(self, start: int, part: Section) -> None:
        """Overwrite the part of the dense blocks that starts at `start`.

        Raises:
            PserverError: the values have the wrong size or dtype, or are not finite; nothing is changed.
        """
        span = part_span(start, self._slabs.now.size)
        self._check("values", part, start, max(span.stop - start, 0))
        self._notify(span, self.version)
        self._slabs.now[span] = part.array

    def dense(self) -> Slab:
        """Return a copy (size,) float32 of all dense blocks at one point in time."""
        return self._slabs.now.copy()

    def dense_part(self, start: int, count: int) -> Slab:
        """Return a copy (n,) of at most `count` elements of the dense blocks, starting at `start`."""
        return self._slabs.now[start : start + count].copy()

    def dense_chunk(self, index: int) -> Slab:
        """Return a copy of one chunk (n,) float32 of the dense blocks."""
        return self._slabs.now[chunk_span(index, self._slabs.now.size)].copy()

    def check(self, gradient: Gradient) -> None:
        """Check a gradient from the wire, and prepare it for its remaining parts.

        A large gradient in shared memory is checked for NaN and infinity later, by `add_whole` or `check_finite`.

        Raises:
            PserverError: the gradient cannot be applied; the message names the parameter.
        """
        if gradient.slab is not None:
            self._expect("gradient", gradient.slab.array, self._slabs.now.size)
            gradient.is_checked = not (gradient.in_place and gradient.slab.array.nbytes >= AT_ONCE_BYTES)
            if gradient.is_checked:
                self._inspect("gradient", gradient.slab, 0)
        for name, rows in gradient.rows.items():
            self.rows_of(name).check(rows)
            if name in self.growing:
                self.growing[name].table.prepare([rows])
        if gradient.asked:
            self.check_requested(gradient.asked.items())
        gradient.expect(self._slabs.now.size)

    def check_requested(self, asked: Iterable[tuple[str, npt.NDArray[np.int64]]]) -> None:
        """Check requested row ids (n,) before memory is allocated for them.

        Raises:
            PserverError: a parameter or id is not on this server, or the rows do not fit in a message.
        """
        for name, ids in asked:
            rows = self.rows_of(name)
            rows.check_ids(ids)
            nbytes = 4 * rows.width * len(ids)
            if nbytes > MAX_FRAME_BYTES:
                raise PserverError(
                    f"parameter {name}: {len(ids)} rows have {nbytes} bytes, but a message can hold "
                    f"{MAX_FRAME_BYTES}; request fewer at a time"
                )

    def check_chunk(self, index: int, chunk: Section) -> None:
        """Check the dtype, size and values of one chunk of a gradient.

        Raises:
            PserverError: see `check`.
        """
        span = chunk_span(index, self._slabs.now.size)
        self._check("gradient", chunk, span.start, span.stop - span.start)

    def begin(self, samples: int) -> None:
        """Begin a step with checked gradients of `samples` samples. It takes effect when `commit` is called.

        The schedule's sample count includes these samples in synchronous training, but not in asynchronous training.

        Raises:
            ConfigError: the schedule has no learning rate for the step.
        """
        seen = self.num_samples + (0 if self.optimizer.is_async else samples)
        self._rates = self._schedule.at(seen, self.pass_id, self.version)
        self._step.rate = self._rates.job
        self._step_samples = samples

    def add(self, index: int, chunks: Sequence[Slab]) -> Section | None:
        """Add up a chunk of all gradients in the given order; return its new values if they are known.

        The values are views, which are valid until the step after the next one begins.
        """
        span = chunk_span(index, self._slabs.now.size)
        self._notify_of_step(span)
        checksum = self._step.add(span, chunks).checksum
        return Section("", self._slabs.later[span], checksum) if self.is_plain else None

    def add_whole(self, slabs: Sequence[Slab]) -> None:
        """Add up whole gradients on several cores, like `add`, and check them for NaN and infinity.

        Raises:
            NonFiniteGradient: a gradient contains NaN or infinity; the message names the parameter.
        """
        self._notify_of_step(slice(0, self._slabs.now.size))
        if self._step.add_whole(slabs):
            return
        for number, slab in enumerate(slabs):
            self.check_finite(slab, number)

    def check_finite(self, slab: Slab, number: int) -> None:
        """Check a whole gradient for NaN and infinity.

        Args:
            number: index of the gradient in the error.

        Raises:
            NonFiniteGradient: the gradient contains NaN or infinity; the message names the parameter.
        """
        try:
            self._inspect("gradient", Section("", slab), 0)
        except PserverError as error:
            raise NonFiniteGradient(str(error), number) from None

    def apply(self, gradient: Gradient) -> None:
        """Take a whole step with one complete, checked gradient.

        Raises:
            ConfigError, PserverError: see `begin` and `commit`; nothing was changed.
        """
        self.begin(gradient.num_samples)
        for index, chunk in enumerate(gradient.chunks):
            assert chunk is not None
            self.add(index, [chunk])
        self.commit([gradient.rows])

    def commit(self, rows: Sequence[Mapping[str, RowGradient]]) -> None:
        """End the step after all chunks were added; `rows` are the gradients of sparse parameters, in the same order.

        Raises:
            PserverError: a growing table has no room for new rows, or its values would be out of range; nothing was
                changed. Also raised if memory or a disk failed within the step: see `failure`.
        """
        for name, growing in self.growing.items():
            growing.table.reserve([each[name] for each in rows if name in each], self._rates.of(name))
        try:
            self._commit(rows)
        except _CUTS as error:
            raise self._cut(error) from None

    def _commit(self, rows: Sequence[Mapping[str, RowGradient]]) -> None:
        rates = self._rates
        if self._step.is_plain:
            self._slabs.swap()
            for updater in self.updaters:
                updater.batches += 1
        else:
            for dense, updater in zip(self.share.dense, self.updaters, strict=True):
                span = slice(dense.start, dense.stop)
                changing = partial(self._tell_part, dense.parameter.name, self.version)
                rate = rates.of(dense.parameter.name)
                updater.update(self._slabs.now[span], self._slabs.later[span], rate, changing)
        for name, table in self.tables.items():
            table.update([each[name] for each in rows if name in each], rates.of(name))
        for name, growing in self.growing.items():
            growing.table.apply([each[name] for each in rows if name in each], rates.of(name))
        self.num_samples += self._step_samples
        self.version += 1

    def catch_up(self) -> None:
        """Apply pending decay and momentum to all sparse rows.

        Raises PserverError if memory or a disk failed: see `failure`.
        """
        rates = self._current_rates()
        holders: dict[str, Table | ServedTable] = {**self.tables, **self.growing}
        try:
            for name, table in holders.items():
                table.catch_up(rates.of(name))
        except _CUTS as error:
            raise self._cut(error) from None

    def _current_rates(self) -> StepRates:
        """Return the learning rates of the last step's position in training."""
        return self._schedule.at(self.num_samples, self.pass_id, max(self.version - 1, 0))

    def check_scores(self, least: Mapping[str, float]) -> None:
        """Check that growing tables can be shrunk. Raises PserverError if one is unknown or has no scores."""
        for name in least:
            if name not in self.growing:
                raise PserverError(
                    f"shrink: no growing table is named {name!r}; known: {sorted(self.growing)}"
                )
            self.growing[name].share.spec.check_scored()

    def shrink(self, least: Mapping[str, float]) -> None:
        """Drop the rows of growing tables with scores below the given minimum of each table; see `check_scores`."""
        self.shrunk_at = self.version
        try:
            for name, score in least.items():
                self.growing[name].table.shrink(score)
        except _NO_MEMORY as error:  # a disk error precedes the change of its table
            raise self._cut(error) from None

    def finish_pass(self) -> None:
        """End a pass: apply pending updates to sparse rows, and advance the pass number of schedules."""
        self.catch_up()
        self.pass_id += 1
        self.pass_version = self.version

    def _cut(self, error: Exception) -> PserverError:
        """Set `failure`, because an error interrupted a change that must be complete; return the exception to raise."""
        cause, remedy = "memory ran out", ", with more servers or with GrowingTable(memory=...)"
        if isinstance(error, DiskError):
            cause, remedy = "a disk failed", ""
        tables = "".join(f"table {name}: {each.table.nbytes} bytes, " for name, each in self.growing.items())
        self.failure = (
            f"{cause} after batch {self.version}, and the next change is incomplete: "
            f"{error or 'an allocation failed'}; {tables}dense values: {self._slabs.now.nbytes} bytes. All requests "
            f"are refused now: resume from a checkpoint{remedy}"
        )
        return PserverError(self.failure)

    def _notify_of_step(self, span: slice) -> None:
        """Notify the watch that a span of later values is computed, if it overwrites those before the last step."""
        if self.is_plain and self._watch is not UNWATCHED:
            self._notify(span, self.version - 1)

    def _notify(self, span: slice, version: int) -> None:
        """Notify the observer that a span of all dense blocks, in its memory since `version`, will be overwritten."""
        first = max(bisect_right(self._starts, span.start) - 1, 0)
        for part in self.share.dense[first:]:
            if part.start >= span.stop:
                break
            start, stop = max(part.start, span.start), min(part.stop, span.stop)
            self._tell_part(part.parameter.name, version, start - part.start, stop - part.start)

    def _tell_part(self, name: str, version: int, start: int, stop: int) -> None:
        self._watch.dense(Elements(name, start, stop, version))

    def _check(self, what: str, section: Section, start: int, size: int) -> None:
        """Check an array for the elements of the slab starting at `start`."""
        self._expect(what, section.array, size)
        self._inspect(what, section, start)

    def _expect(self, what: str, array: npt.NDArray[Any], size: int) -> None:
        if array.shape != (size,) or array.dtype != np.float32:
            parts = ", ".join(f"{part.parameter.name}: {part.stop - part.start}" for part in self.share.dense)
            raise PserverError(
                f"{what}: expected {(size,)} float32 for the blocks on this server "
                f"({parts or 'none'}), got {array.shape} {array.dtype}"
            )

    def _inspect(self, what: str, section: Section, start: int) -> None:
        if section.is_finite:
            return
        for part in self.share.dense:
            theirs = slice(max(part.start - start, 0), max(part.stop - start, 0))
            if not np.isfinite(section.array[theirs]).all():
                raise PserverError(
                    f"{what} of parameter {part.parameter.name} contains NaN or infinity; nothing was changed"
                )
