# SPDX-License-Identifier: Apache-2.0
"""The parameters that one server holds, their optimizers, and how a batch changes them.

Dense blocks of all parameters lie in one array, the slab; gradients and values travel as slabs too. A batch
is applied wholly or not at all: everything is checked first. The version counts batches applied and never
goes back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paddle.errors import PserverError
from paddle.optim.dense import DenseUpdater
from paddle.optim.schedule import LearningRate
from paddle.optim.spec import OptimizerSpec
from paddle.pserver.gradient import Gradient, Slab
from paddle.pserver.placement import ServerShare
from paddle.pserver.table import Table
from paddle.pserver.watch import UNWATCHED, Watch


class Store:
    """Parameters, zero until set. Not thread-safe."""

    def __init__(self, share: ServerShare, optimizer: OptimizerSpec) -> None:
        """Allocate.

        Raises:
            ConfigError: the optimizer cannot update one of the parameters.
        """
        self.share, self.optimizer = share, optimizer
        self.version = 0
        self.num_samples = 0
        self.pass_id = 0
        self.pass_version = 0
        self._watch: Watch = UNWATCHED
        self._rate = LearningRate(optimizer)
        self._slab = np.zeros(share.slab_size, np.float32)
        self._updaters = [
            DenseUpdater(optimizer, part.parameter, part.stop - part.start) for part in share.dense
        ]
        self._tables = {part.parameter.name: Table(part, optimizer) for part in share.tables}

    def table(self, name: str) -> Table:
        """Return the rows of one sparse parameter.

        Raises:
            PserverError: no such sparse parameter has rows here.
        """
        if name not in self._tables:
            raise PserverError(f"sparse parameter {name!r} is unknown here; known: {sorted(self._tables)}")
        return self._tables[name]

    @property
    def tables(self) -> dict[str, Table]:
        """The rows of all sparse parameters here, by name."""
        return self._tables

    @property
    def updaters(self) -> list[DenseUpdater]:
        """One for each part of `share.dense`."""
        return self._updaters

    @property
    def slab(self) -> Slab:
        """All dense blocks, not copied."""
        return self._slab

    def be_watched(self, watch: Watch) -> None:
        """Tell `watch` from now on what is about to change."""
        self._watch = watch
        for table in self._tables.values():
            table.watch = watch

    def set_dense(self, slab: Slab) -> None:
        """Overwrite all dense blocks.

        Raises:
            PserverError: wrong size or dtype, or not finite; nothing is changed.
        """
        self._check_slab("values", slab)
        self._watch.dense()
        self._slab[...] = slab

    def dense(self) -> Slab:
        """Return a copy of all dense blocks, one moment's state."""
        return self._slab.copy()

    def check(self, gradient: Gradient) -> None:
        """Check a gradient from the wire.

        Raises:
            PserverError: it cannot be applied; the message names the parameter.
        """
        self._check_slab("gradient", gradient.slab)
        for name, rows in gradient.rows.items():
            self.table(name).check(rows)

    def apply(self, gradients: Sequence[Gradient]) -> None:
        """Take one step with the sum of checked gradients, added in the order given.

        The schedule sees the samples processed including these in synchronous training, and without them in
        asynchronous.
        """
        samples = sum(gradient.num_samples for gradient in gradients)
        seen = self.num_samples + (0 if self.optimizer.is_async else samples)
        rate = self._rate.at(seen, self.pass_id, self.version)
        self._watch.dense()
        total = gradients[0].slab
        if len(gradients) > 1:
            total = total + gradients[1].slab
            for gradient in gradients[2:]:
                total += gradient.slab
        for part, updater in zip(self.share.dense, self._updaters, strict=True):
            updater.update(self._slab[part.start : part.stop], total[part.start : part.stop], rate)
        for name, table in self._tables.items():
            table.update([gradient.rows[name] for gradient in gradients if name in gradient.rows], rate)
        self.num_samples += samples
        self.version += 1

    def catch_up(self) -> None:
        """Bring all sparse rows to the present."""
        rate = self._rate.at(self.num_samples, self.pass_id, max(self.version - 1, 0))
        for table in self._tables.values():
            table.catch_up(rate)

    def finish_pass(self) -> None:
        """End a pass: sparse rows catch up, and the pass number of schedules advances."""
        self.catch_up()
        self.pass_id += 1
        self.pass_version = self.version

    def _check_slab(self, what: str, slab: Slab) -> None:
        if slab.shape != self._slab.shape or slab.dtype != np.float32:
            parts = ", ".join(f"{part.parameter.name}: {part.stop - part.start}" for part in self.share.dense)
            raise PserverError(
                f"{what}: expected {self._slab.shape} float32 for the blocks here ({parts or 'none'}), "
                f"got {slab.shape} {slab.dtype}"
            )
        # A sum is finite far faster than every element is checked; only a strange sum needs the slow look.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(slab.sum()):
                return
        for part in self.share.dense:
            if not np.isfinite(slab[part.start : part.stop]).all():
                raise PserverError(
                    f"{what} of parameter {part.parameter.name} is NaN or infinite; nothing was changed"
                )
