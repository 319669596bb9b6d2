# SPDX-License-Identifier: Apache-2.0
"""The loops of index.c and rows.c and their plain forms: the same, at every speed level, also at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.kernels import library
from paddle.pserver.sparse import index, rows
from paddle.pserver.sparse.blocks import cells_of
from paddle.pserver.sparse.index import ABSENT, Index, PlainIndex, grouped, grouped_plainly
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.rows import CompiledRows, PlainRows
from paddle.pserver.sparse.structures import ComingRows

BITS, PARTS = 4, 2
pytestmark = pytest.mark.skipif(not library.level(), reason=library.reason())


@pytest.fixture(params=library.levels(), autouse=True)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for kernels in (index.KERNELS, rows.KERNELS):
        monkeypatch.setattr(kernels, "loaded", kernels.at_level(request.param))


@pytest.mark.parametrize("count", [0, 1, 2, 31, 33, 1000, 40_001])
@pytest.mark.parametrize("distinct", [1, 7, 10**6])
def test_equal_ids_are_found_alike(count: int, distinct: int) -> None:
    rng = np.random.default_rng(count)
    ids = rng.integers(-(2**63), 2**63 - 1, distinct)[rng.integers(0, distinct, count)]
    for one, other in zip(grouped(ids), grouped_plainly(ids), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("count", [0, 1, 5, 33, 5000])
def test_indices_agree(count: int) -> None:
    ids = np.unique(np.random.default_rng(count).integers(-(2**63), 2**63 - 1, count))
    numbers = np.arange(len(ids), dtype=np.uint32)
    one, other = Index(), PlainIndex()
    for each in (one, other):
        each.insert(ids, numbers)
        each.put(ids[::2].copy(), numbers[::2] + np.uint32(9))
        each.remove(ids[1::3].copy())
    probe = np.concatenate([ids, ids + 1, np.array([0, 1, -1])])
    np.testing.assert_array_equal(one.find(probe), other.find(probe))
    for mine, theirs in zip(one.segments(), other.segments(), strict=True):
        for array, twin in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(array, twin)


@pytest.mark.parametrize("count", [0, 1, 3, 25, 26, 40])
@pytest.mark.parametrize("width", [1, 2, 7, 64])
@pytest.mark.parametrize("kind", ["constant", "uniform", "normal"])
@pytest.mark.parametrize("is_half", [False, True])
def test_rows_agree_with_nan_and_infinities_in_them(count: int, width: int, kind: str, is_half: bool) -> None:
    rng = np.random.default_rng(width)
    initial = Initial(kind, 0.5, 2.0, 3)
    forms = [form(BITS, width, PARTS, initial, is_half=is_half) for form in (CompiledRows, PlainRows)]
    cells = cells_of(width, width * PARTS, is_half=is_half)
    for _ in range(3):
        slab = rng.standard_normal((cells + 1) << BITS).astype(np.float32)
        slab[:: 5 * width] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0], np.float32))
        for form in forms:
            form.add(slab.copy().view(np.uint8))
    numbers = rng.permutation(3 << BITS)[:count].astype(np.uint32)
    ids, fresh = rng.integers(-(2**63), 2**63 - 1, count), rng.random(count) < 0.3
    some = np.where(fresh, np.uint32(ABSENT), numbers)
    found = []
    for form in forms:
        out = [np.empty((count, width), np.float32) for _ in range(2)]
        form.read(some, ids, out[0], False)
        form.read(some, ids, out[1], True)
        parts, ticks = np.empty((PARTS, count, width), np.float32), np.empty(count, np.uint32)
        form.begin(numbers, ids, fresh, 77, parts, ticks)
        form.scatter(numbers, parts[:, ::-1].copy(), ticks[::-1].copy())
        form.set_ticks(numbers[::2].copy(), ticks[::2].copy())
        form.gather(numbers, parts, ticks)
        found.append([each.tobytes() for each in (*out, parts, ticks, form.ticks(numbers))])
    assert forms[0].largest == forms[1].largest
    assert found[0] == found[1]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 3000])
@pytest.mark.parametrize("most", [0, 5, 10**6])
def test_a_batch_finds_and_makes_rows_as_the_plain_form_does(count: int, most: int) -> None:
    rng = np.random.default_rng(count)
    ids = rng.integers(-(2**63), 2**63 - 1, count)[rng.integers(0, max(count // 2, 1), count)]
    known = np.unique(ids)[::2]
    held, form = Index(), CompiledRows(10, 3, PARTS, Initial("uniform", 0.5, 2.0, 3))
    for _ in range(8):
        form.add(rng.standard_normal((3 * PARTS + 1) << 10).astype(np.float32).view(np.uint8))
    held.insert(known, np.arange(len(known), dtype=np.uint32))
    coming = ComingRows(np.array([6001, 6000], np.uint32), 4000, most, 10**6)
    found = form.update(held, ids, np.zeros((count, 3), np.float32), coming, None)
    _, distinct, order, starts = grouped_plainly(ids)
    for one, other in zip(found[3:5], (order, starts), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(found.ids, distinct)
    here = np.isin(distinct, known)
    np.testing.assert_array_equal(found.numbers[here], np.searchsorted(known, distinct[here]))
    made = np.flatnonzero(found.fresh)
    assert len(made) == found.made == min(most, int((~here).sum()))  # also where pieces were full
    assert found.numbers[made].tolist() == [6000, 6001, *range(4000, 6000)][: found.made]
    assert ((found.numbers == ABSENT) == ~(here | found.fresh)).all()
    assert not found.is_changed
    np.testing.assert_array_equal(held.find(distinct), found.numbers)
    for as_zero in (False, True):
        looked_up, read = (np.empty((count, 3), np.float32) for _ in range(2))
        form.lookup(held, ids, looked_up, as_zero)
        form.read(held.find(ids), ids, read, as_zero)
        assert looked_up.tobytes() == read.tobytes()


def test_ids_that_are_not_there_are_reported() -> None:
    for each in (Index(), PlainIndex()):
        each.insert(np.array([5, 7]), np.array([1, 2], np.uint32))
        with pytest.raises(KeyError, match="1 of 2 ids are not in the index"):
            each.put(np.array([5, 6]), np.array([8, 9], np.uint32))
        assert each.find(np.array([5, 6, 7])).tolist() == [8, ABSENT, 2]
        with pytest.raises(KeyError, match="1 of 2 ids are not in the index"):
            each.remove(np.array([6, 7]))
        assert (each.find(np.array([5, 6, 7])).tolist(), len(each)) == ([8, ABSENT, ABSENT], 1)


def test_sums_are_added_in_the_order_of_the_batch() -> None:
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 50, 700)
    _, distinct, order, starts = grouped(ids)
    values = (rng.standard_normal((700, 9)) * 10.0 ** rng.integers(-20, 20, (700, 1))).astype(np.float32)
    which = rng.permutation(len(distinct))
    one, other = (
        form(BITS, 9, PARTS, Initial()).add_up((values, order, starts), which)
        for form in (CompiledRows, PlainRows)
    )
    assert one.tobytes() == other.tobytes()


def test_arrays_of_another_size_or_kind_do_not_reach_the_loops() -> None:
    form = CompiledRows(BITS, 3, PARTS, Initial())
    numbers = np.full(4, ABSENT, np.uint32)
    wrong: list[tuple[np.ndarray, np.ndarray]] = [
        (np.zeros(3, np.int64), np.zeros((4, 3), np.float32)),
        (np.zeros(4, np.int32), np.zeros((4, 3), np.float32)),
        (np.zeros(4, np.int64), np.zeros((4, 2), np.float32)),
        (np.zeros(4, np.int64), np.zeros((3, 4), np.float32).T),
    ]
    for ids, out in wrong:
        with pytest.raises(ValueError, match="a kernel needs"):
            form.read(numbers, ids, out, False)


def test_positions_behind_the_last_id_of_a_call_fit_into_int32() -> None:
    assert np.iinfo(np.int32).max >= index.MOST_AT_ONCE + 2
