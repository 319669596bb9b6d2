# SPDX-License-Identifier: Apache-2.0
"""The reference of growing tables: a dict from ids to rows, one row at a time. `HashTable` must agree with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from paddle.optim.sparse import RowStep
from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.sparse.blocks import Block, Header, Sightings
from paddle.pserver.sparse.mixing import SEGMENTS, segments_of
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.ticks import MAX_AGE, ages, changed, new_tick, since_of, tick, undecayed

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass
class _Row:
    parts: Floats  # (1 + states, 1, width + states of which a row has one number)
    tick: npt.NDArray[np.uint32]  # (1,)


@dataclass
class PlainSnapshot:
    """A copy of a table's rows at one batch."""

    header: Header
    blocks: list[Block] = field(default_factory=list)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)


class PlainTable:
    """See `HashTable`, whose methods these are."""

    def __init__(self, spec: TableSpec, optimizer: OptimizerSpec) -> None:
        spec.check_optimizer(optimizer)
        self.spec = spec
        self.clock = 0
        self._caught_up = 0
        self._step = RowStep(optimizer, spec.parameter)
        self._scored = spec.budget.is_scored
        self._floats = spec.width + len(self._step.row_states) + self._scored  # of a part
        self._hand = 0
        self._rows: dict[int, _Row] = {}
        self._seen: dict[int, int] = {}
        self._before: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def lookup(self, ids: Ids, unknown: str = "initial") -> Floats:
        """See `HashTable.lookup`."""
        found = self._rounded(self.spec.initial.rows(ids, self.spec.width))
        if unknown == "zero":
            found[:] = 0.0
        for i, row_id in enumerate(ids.tolist()):
            if row_id in self._rows:
                found[i] = self._rows[row_id].parts[0, 0, : self.spec.width]
        return found

    def update(self, gradients: Sequence[RowGradient], learning_rate: float) -> None:
        """See `HashTable.update`."""
        sums: dict[int, Floats] = {}
        shown: dict[int, np.float32] = {}
        for ids, values in gradients:
            for row_id, value in zip(ids.tolist(), values, strict=True):
                g, seen = value[: self.spec.width], value[self.spec.width :]
                sums[row_id] = sums[row_id] + g if row_id in sums else g
                weight = np.float32(1)
                if len(seen):
                    click = self.spec.budget.click if self.spec.budget.evict == "score" else 0
                    weight = seen[0] + np.float32(click) * seen[1]
                shown[row_id] = shown[row_id] + weight if row_id in shown else weight
        if all(values.shape[1] == self.spec.width for _, values in gradients):
            shown = dict.fromkeys(sums, np.float32(1))
        self._check_room(row_id for row_id in sums if self._sightings(row_id) + 1 >= self.spec.entry)
        self._begin_batch()
        admitted = {row_id: g for row_id, g in sums.items() if row_id in self._rows or self._admit(row_id)}
        for row_id, g in admitted.items():
            if row_id not in self._rows:
                self._rows[row_id] = self._new(row_id)
            row = self._rows[row_id]
            width = self.spec.width
            state = {name: row.parts[i, :, :width] for i, name in enumerate(self._step.states, 1)}
            state |= {name: row.parts[0, :, i : i + 1] for i, name in enumerate(self._step.row_states, width)}
            since = since_of(row.tick, self.clock, self._caught_up)
            self._step.apply(row.parts[0, :, :width], g[None], state, since, self.clock, learning_rate)
            row.parts[0, :, :width] = self._rounded(row.parts[0, :, :width])
            if self._scored:
                row.parts[0, 0, -1] = self._score(row, 1) + float(shown[row_id])
            row.tick[:] = tick(self.clock)
        self._evict()

    def reserve(self, gradients: Sequence[RowGradient]) -> None:
        """See `HashTable.reserve`."""
        ids = {row_id for gradient in gradients for row_id in gradient.rows.tolist()}
        self._check_room(row_id for row_id in ids if self._sightings(row_id) + 1 >= self.spec.entry)

    def assign(self, ids: Ids, values: Floats) -> None:
        """See `HashTable.assign`."""
        self._check_room(ids.tolist())
        self._begin_batch()
        for row_id, value in zip(ids.tolist(), values, strict=True):
            row = self._new(row_id)
            row.parts[0, 0, : self.spec.width] = self._rounded(value)
            if self._scored:
                row.parts[0, 0, -1] = 1.0
            self._rows[row_id] = row
        self._evict()

    def shrink(self, min_score: float) -> int:
        """See `HashTable.shrink`."""
        before = len(self)
        self._rows = {each: row for each, row in self._rows.items() if self._score(row) >= min_score}
        return before - len(self)

    def catch_up(self, learning_rate: float) -> None:
        """See `HashTable.catch_up`."""
        if not self._step.decays:
            return
        for row in self._rows.values():
            owed = undecayed(row.tick, self.clock, self._caught_up)
            values = row.parts[0, :, : self.spec.width]
            self._step.decay(values, owed, learning_rate)
            values[:] = self._rounded(values)
        self._caught_up = self.clock

    def snapshot(self, since: int | None = None) -> PlainSnapshot:
        """See `HashTable.snapshot`."""
        if since is not None and (since < self._caught_up or self.clock - since > MAX_AGE):
            since = None
        snapshot = PlainSnapshot(self.header)
        for row_id, row in self._rows.items():
            if changed(row.tick, since, self.clock)[0]:
                snapshot.blocks.append(Block(np.array([row_id]), row.parts.copy(), row.tick.copy()))
        return snapshot

    @property
    def header(self) -> Header:
        """What belongs to copies of all rows."""
        sightings = _sightings(self._seen), _sightings(self._before)
        return Header(self.clock, self._caught_up, sightings, self._hand)

    def whole(self) -> Block:
        """Return copies of all rows."""
        rows = self._rows.values()
        parts = np.empty((1 + len(self._step.states), len(rows), self._floats), np.float32)
        ticks = np.empty(len(rows), np.uint32)
        for i, row in enumerate(rows):
            parts[:, i : i + 1], ticks[i : i + 1] = row.parts, row.tick
        return Block(np.fromiter(self._rows, np.int64, len(rows)), parts, ticks)

    def restore(self, header: Header, blocks: Iterable[Block]) -> None:
        """See `HashTable.restore`."""
        for ids, parts, ticks in blocks:
            for i, row_id in enumerate(ids.tolist()):
                self._rows[row_id] = _Row(parts[:, i : i + 1].copy(), ticks[i : i + 1].copy())
        self.clock, self._caught_up, self._hand = header.clock, header.caught_up, header.hand
        self._seen, self._before = (
            dict(zip(ids.tolist(), counts.tolist(), strict=True)) for ids, counts in header.waiting
        )
        for segment in range(SEGMENTS):
            self._sweep(segment, self.clock - (self.clock - segment) % SEGMENTS)

    def _begin_batch(self) -> None:
        self.clock += 1
        is_full = 0 < self.spec.budget.memory // 4 // 34 < len(self._seen)
        if is_full or (self.spec.max_age and self.clock % self.spec.max_age == 0):
            self._seen, self._before = {}, self._seen
        self._sweep(self.clock % SEGMENTS, self.clock)

    def _sweep(self, segment: int, clock: int) -> None:
        if clock <= 0:
            return
        for row_id in self._in_segment(segment):
            row = self._rows[row_id]
            age = int(ages(row.tick, clock)[0])
            is_old = 0 < self.spec.max_age < age
            is_low = self._scored and self._score(row, clock=clock) < self.spec.budget.min_score
            if age < 1 << 30 and (is_old or is_low):
                del self._rows[row_id]

    def _in_segment(self, segment: int) -> list[int]:
        if not self.spec.max_age and not self.spec.budget.memory and not self.spec.budget.min_score:
            return []
        ids = np.fromiter(self._rows, np.int64, len(self._rows))
        return [int(each) for each in ids[segments_of(ids) == segment]]

    def _score(self, row: _Row, least_age: int = 0, clock: int | None = None) -> float:
        """Return a row's score now, or at a batch: a product of powers of the decay, the lowest first."""
        score = float(row.parts[0, 0, -1])
        power = self.spec.budget.decay if self.spec.budget.evict == "score" else 1.0
        age = max(int(ages(row.tick, self.clock if clock is None else clock)[0]), least_age)
        while age:
            score *= power if age & 1 else 1.0
            age, power = age >> 1, power * power
        return score

    def _evict(self) -> None:
        """Drop the worst rows of as many segments as hold 8 times what is too much, from the hand on."""
        memory = self.spec.budget.memory
        if not memory:
            return
        row_bytes = 4 * self._floats * (1 + len(self._step.states)) + 4 + 17
        if self.spec.dtype == "float16":
            row_bytes -= 4 * (self.spec.width // 2)
        left = max(memory - 17 * (len(self._seen) + len(self._before)), memory // 2)
        over = len(self) - max(left // row_bytes, 1)
        if over <= 0:
            return
        segments: dict[int, list[int]] = {}
        ids = np.fromiter(self._rows, np.int64, len(self._rows))
        for row_id, segment in zip(ids.tolist(), segments_of(ids).tolist(), strict=True):
            segments.setdefault(segment, []).append(row_id)
        found: list[int] = []
        for _ in range(SEGMENTS):
            found += segments.get(self._hand, [])
            self._hand = (self._hand + 1) % SEGMENTS
            if len(found) >= 8 * over:
                break
        for row_id in sorted(found, key=self._urgency)[: max(over, len(found) // 8)]:
            del self._rows[row_id]

    def _urgency(self, row_id: int) -> tuple[float, int, int]:
        row = self._rows[row_id]
        return self._score(row) if self._scored else 0.0, -int(ages(row.tick, self.clock)[0]), row_id

    def _sightings(self, row_id: int) -> int:
        return self._seen.get(row_id, 0) + self._before.get(row_id, 0)

    def _admit(self, row_id: int) -> bool:
        if self._sightings(row_id) + 1 >= self.spec.entry:
            self._seen.pop(row_id, None)
            self._before.pop(row_id, None)
            return True
        self._seen[row_id] = self._seen.get(row_id, 0) + 1
        return False

    def _rounded(self, values: Floats) -> Floats:
        return values.astype(self.spec.dtype).astype(np.float32)

    def _new(self, row_id: int) -> _Row:
        parts = np.zeros((1 + len(self._step.states), 1, self._floats), np.float32)
        parts[0, :, : self.spec.width] = self._rounded(
            self.spec.initial.rows(np.array([row_id]), self.spec.width)
        )
        return _Row(parts, np.array([new_tick(self.clock)], np.uint32))

    def _check_room(self, ids: Iterable[int]) -> None:
        count = len({row_id for row_id in ids if row_id not in self._rows})
        self.spec.check_room(len(self), count)


def _sightings(counts: dict[int, int]) -> Sightings:
    return Sightings(np.array(list(counts), np.int64), np.array(list(counts.values()), np.uint32))
