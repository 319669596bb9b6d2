# SPDX-License-Identifier: Apache-2.0
"""What growing tables are made of: initial values, the index."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddle.errors import ConfigError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse import index as index_module
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.index import ABSENT, Index, grouped
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.mixing import SEGMENTS, mix, mix_one, segments_of
from paddle.pserver.sparse.spec import TableSpec
from tests.runtime.pserver.sparse.table_of_rows import INITIALS, arbitrary_ids, table_of

EXTREMES = np.array([0, 1, -1, 2, 2**63 - 1, -(2**63)])


def test_the_mixer_gives_the_published_numbers() -> None:
    # splitmix64's first outputs from the state 0 are the mixed multiples of its increment.
    assert mix_one(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert mix_one(2 * 0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


@pytest.mark.parametrize("width", [1, 2, 7, 64])
@pytest.mark.parametrize("kind", INITIALS)
def test_a_row_begins_with_what_the_formula_says_whether_it_is_there_or_not(kind: str, width: int) -> None:
    ids = np.concatenate([EXTREMES, arbitrary_ids(500)])
    table = table_of(INITIALS[kind], width)
    expected = INITIALS[kind].rows(ids, width)
    np.testing.assert_array_equal(table.lookup(ids), expected)
    table.update([RowGradient(ids, np.zeros((len(ids), width), np.float32))], 0.1)
    np.testing.assert_array_equal(table.lookup(ids), expected)


def test_normal_values_are_those_of_box_and_muller() -> None:
    start, expected = mix_one(7 ^ mix_one(3)), []
    for k in range(1, 2001):
        word = mix_one(start + k * 0x9E3779B97F4A7C15)
        r = math.sqrt(-2 * math.log(((word >> 32) + 1) / 2**32))
        phi = 2 * math.pi * (word & 0xFFFFFFFF) / 2**32
        expected += [r * math.cos(phi), r * math.sin(phi)]
    found = Initial.normal(0.0, 1.0, 3).rows(np.array([7]), 4000)
    np.testing.assert_allclose(found[0], expected, rtol=1e-7, atol=1e-14)


def test_initial_values_do_not_depend_on_who_came_first() -> None:
    ids = arbitrary_ids(100)
    one, other = table_of(INITIALS["normal"], 6), table_of(INITIALS["normal"], 6)
    zeros = np.zeros((100, 6), np.float32)
    one.update([RowGradient(ids, zeros)], 0.1)
    for row_id in ids[::-1]:
        other.update([RowGradient(np.array([row_id]), zeros[:1])], 0.1)
    np.testing.assert_array_equal(one.lookup(ids), other.lookup(ids))


def test_initial_values_have_the_moments_asked_for_and_differ_by_seed() -> None:
    ids = np.arange(20_000)
    for kind, std in (("uniform", 2 / math.sqrt(12)), ("normal", 2.0)):
        rows = INITIALS[kind].rows(ids, 16)
        mean = 0.5 if kind == "uniform" else 0.1
        assert abs(rows.mean() - mean) < 0.02
        assert abs(rows.std() - std) < 0.02
        assert abs(np.corrcoef(rows[:-1, 0], rows[1:, 0])[0, 1]) < 0.05
        assert abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1]) < 0.05
    uniform = INITIALS["uniform"].rows(ids, 16)
    assert -0.5 <= uniform.min() < uniform.max() < 1.5
    others = Initial.uniform(-0.5, 1.5, 8).rows(ids, 16)
    assert (uniform == others).mean() < 0.001


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (("bell", 0.0, 1.0, 1), "expected one of constant, uniform, normal, got 'bell'"),
        (("normal", math.nan, 1.0, 1), "mean: expected a float32, got nan"),
        (("normal", 0.0, -1.0, 1), "spread: expected 0 or more"),
        (("normal", 0.0, 1.0, -1), "seed: expected 0 to 2"),
        (("normal", 0.0, True, 1), "spread: expected a float32"),
    ],
)
def test_initial_values_that_cannot_be_are_refused(wrong: tuple[str, float, float, int], why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("^", "")):
        Initial(*wrong)


def test_a_description_travels_and_is_read_strictly() -> None:
    spec = TableSpec(ParameterSpec("emb", (1, 8), sparse=True), INITIALS["normal"], 3, 1000, 10**6)
    assert TableSpec.from_json(spec.to_json()) == spec
    with pytest.raises(ConfigError, match="TableSpec: expected the fields"):
        TableSpec.from_json(spec.to_json() | {"extra": 1})
    with pytest.raises(ConfigError, match="entry: expected 1 to"):
        TableSpec.from_json(spec.to_json() | {"entry": 0})
    with pytest.raises(ConfigError, match=r"shape: expected \(1, width\)"):
        TableSpec(ParameterSpec("emb", (10, 8), sparse=True))


@pytest.mark.parametrize("rule", ["sparse_momentum", "lamb", "lars_momentum"])
def test_rules_that_need_the_whole_table_are_refused(rule: str) -> None:
    spec = TableSpec(ParameterSpec("emb", (1, 8), sparse=True))
    with pytest.raises(ConfigError, match=f"table emb: {rule} needs all rows"):
        HashTable(spec, OptimizerSpec(rule))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=200), st.integers(0, 2**32))
def test_the_index_is_a_dict(operations: list[tuple[bool, int]], seed: int) -> None:
    # Few segments get many ids each, so that searches run into each other and round the end.
    drawn = arbitrary_ids(200_000, seed)
    crowded = drawn[segments_of(drawn) < 2]
    pool = np.concatenate([EXTREMES, crowded])[:60]
    index, twin = Index(), dict[int, int]()
    for number, (adds, which) in enumerate(operations):
        row_id = int(pool[which % len(pool)])
        one = np.array([row_id])
        if adds and row_id not in twin:
            index.insert(one, np.array([number], np.uint32))
            twin[row_id] = number
        elif adds:
            index.put(one, np.array([number], np.uint32))
            twin[row_id] = number
        elif row_id in twin:
            index.remove(one)
            del twin[row_id]
        assert index.find(pool).tolist() == [twin.get(int(row_id), ABSENT) for row_id in pool]
        assert len(index) == len(twin)


@pytest.mark.parametrize("pattern", ["arbitrary", "ascending", "multiples of 2^20", "high bits"])
def test_the_index_takes_about_15_bytes_an_id_and_never_moves_many_at_once(pattern: str) -> None:
    count, batch = 400_000, 4000
    numbers = np.arange(count)
    ids = {
        "arbitrary": arbitrary_ids(count),
        "ascending": numbers,
        "multiples of 2^20": numbers << 20,
        "high bits": numbers << 44,
    }[pattern]
    index = Index()
    most = 0.0
    for start in range(0, count, batch):
        before = index.nbytes
        index.insert(ids[start : start + batch], numbers[start : start + batch].astype(np.uint32))
        if start > count // 4:
            most = max(most, (index.nbytes - before) / before)
    assert index.nbytes / count < 15.6
    # A table that doubled at once would grow by 100 %.
    assert most < 0.15
    np.testing.assert_array_equal(index.find(ids), numbers)
    assert sum(len(found) for found, _ in index.segments()) == count
    sizes = [len(found) for found, _ in index.segments()]
    assert max(sizes) < 2 * count / SEGMENTS


def ids_in_segment(segment: int, count: int, seed: int, bits: int = 10) -> np.ndarray:
    """Invert the mixer: distinct ids of one segment, of which a table would need a thousand times as many."""
    rng = np.random.default_rng(seed)
    return unmixed(
        np.unique(rng.integers(0, 1 << 64 - bits, count, np.uint64)) | np.uint64(segment << 64 - bits)
    )


def unmixed(z: np.ndarray) -> np.ndarray:
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        unshifted = z.copy()
        for _ in range(2):
            unshifted = z ^ (unshifted >> np.uint64(shift))
        z = unshifted * np.uint64(pow(factor, -1, 1 << 64))
    return z.view(np.int64)


def test_ids_of_crowded_segments_are_found_after_these_were_cut_in_pieces() -> None:
    count, batch = 40_000, 1000
    crowd = np.concatenate([[0], ids_in_segment(0, count, 1), ids_in_segment(SEGMENTS - 1, count, 2)])
    assert set(segments_of(crowd).tolist()) == {0, SEGMENTS - 1}
    crowd = np.random.default_rng(3).permutation(crowd)
    numbers = np.arange(len(crowd), dtype=np.uint32)
    index = Index()
    for start in range(0, len(crowd), batch):
        part = slice(start, start + batch)
        index.insert(crowd[part], numbers[part])
    np.testing.assert_array_equal(index.find(crowd), numbers)
    assert (index.find(arbitrary_ids(1000)) == ABSENT).all()
    ids, found = index.segment(0)
    assert sorted(found.tolist()) == np.flatnonzero(segments_of(crowd) == 0).tolist()
    np.testing.assert_array_equal(crowd[found], ids)
    index.remove(crowd[::2])
    index.replace(0, ids[:5], found[:5])
    kept = np.isin(crowd, ids[:5]) | ((segments_of(crowd) > 0) & (numbers % 2 == 1))
    np.testing.assert_array_equal(index.find(crowd) != ABSENT, kept)
    assert len(index) == kept.sum()


def test_ids_chosen_to_be_alike_do_not_make_the_directory_large() -> None:
    ids = ids_in_segment((1 << 16) - 1, 9000, 1, bits=16)  # to tell them apart takes 2^17 pieces
    index = Index()
    index.insert(ids, np.arange(len(ids), dtype=np.uint32))
    np.testing.assert_array_equal(index.find(ids), np.arange(len(ids)))
    assert index.nbytes < 700_000


@pytest.mark.parametrize("alike", ["high bits", "low bits", "segment", "segment and low bits"])
def test_ids_chosen_to_collide_are_found_as_fast_as_others(alike: str) -> None:
    """Without a salt, each of these would be compared with all others: 300 times as slow with so many."""
    count = np.arange(30_000, dtype=np.uint64)
    shift, fixed = {"high bits": (0, 3 << 36), "low bits": (48, 77), "segment": (10, 5 << 54)}.get(
        alike, (36, 5 << 54)
    )
    chosen = np.random.default_rng(1).permutation(unmixed(count << np.uint64(shift) | np.uint64(fixed)))
    seconds = []
    for ids in (arbitrary_ids(len(chosen)), chosen):
        took = []
        for _ in range(3):
            start, index = time.thread_time(), Index()
            index.insert(ids, count.astype(np.uint32))
            index.find(ids)
            grouped(ids)
            took.append(time.thread_time() - start)
        seconds.append(min(took))
    assert seconds[1] < 30 * seconds[0]


@pytest.mark.parametrize("evict", ["lru", "score"])
def test_no_result_depends_on_the_salt(evict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TableSpec(ParameterSpec("emb", (1, 8), sparse=True), INITIALS["normal"], 2, 30)
    spec = replace(spec, budget=Budget(200_000, evict, 0.9))
    copies = []
    for salt in ((1, 1), (0xD1342543DE82EF95, 0x2545F4914F6CDD1D)):
        monkeypatch.setattr(index_module, "SALT", np.array(salt, np.uint64))
        table, rng = HashTable(spec, OptimizerSpec("adagrad")), np.random.default_rng(1)
        pool = np.concatenate([arbitrary_ids(9000), ids_in_segment(7, 4000, 1)])
        for _ in range(60):
            ids = rng.choice(pool, 1500)
            table.update([RowGradient(ids, rng.standard_normal((len(ids), 8)).astype(np.float32))], 0.1)
        assert table.counts.dropped > 1000
        snapshot = table.snapshot(0)
        arrays: list[np.ndarray] = [each for block in snapshot for each in block]
        arrays += [np.asarray(each) for pair in snapshot.header.waiting for each in pair]
        arrays += [table.lookup(pool), snapshot.header.dropped]
        arrays += [numbers for _, numbers in table._index.segments()]
        copies.append([each.tobytes() for each in arrays])
    assert copies[0] == copies[1]


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("batch", [1, 1000, 1 << 13, 100_000])
def test_ids_that_come_in_the_order_of_a_checkpoint_are_found(batch: int, is_descending: bool) -> None:
    """A checkpoint has a segment's ids by piece: all of a batch may belong to one half of the piece that they fill."""
    count = 1 << 12 if batch == 1 else 100_000
    ids = np.concatenate([ids_in_segment(segment, count // 2, 1) for segment in (0, SEGMENTS - 1)])
    ids = ids[::-1] if is_descending else ids  # ascending by mixed bits
    numbers, index = np.arange(len(ids), dtype=np.uint32), Index()
    for start in range(0, len(ids), batch):
        index.insert(ids[start : start + batch], numbers[start : start + batch])
    np.testing.assert_array_equal(index.find(ids), numbers)
    again = Index()
    for held, its_numbers in index.segments():
        again.insert(held, its_numbers)
    np.testing.assert_array_equal(again.find(ids), numbers)


def test_a_segment_lists_its_ids_from_all_over_it() -> None:
    """In the order of mixed bits, an index that is filled with them would search most of a piece for each."""
    ids, index = ids_in_segment(7, 100_000, 1), Index()
    index.insert(np.random.default_rng(2).permutation(ids), np.arange(len(ids), dtype=np.uint32))
    listed, numbers = index.segment(7)
    np.testing.assert_array_equal(np.sort(listed), np.sort(ids))
    np.testing.assert_array_equal(index.find(listed), numbers)
    for start in range(0, len(listed), 8192):
        within = mix(listed[start : start + 8192].view(np.uint64)) >> np.uint64(50) & np.uint64(15)
        share = np.bincount(within.astype(np.int64), minlength=16) / len(within)
        assert share.min() > 0.02, "some sixteenth of the segment has few of these ids"


def test_searches_end_and_find_right_however_often_ids_come_and_go() -> None:
    drawn = arbitrary_ids(100_000)
    crowded = drawn[segments_of(drawn) == SEGMENTS - 1][:40]  # few lines, each of which many will have passed
    here, index = np.zeros(len(crowded), np.bool_), Index()
    rng = np.random.default_rng(4)
    for _ in range(1000):
        leaves = here & (rng.random(len(crowded)) < 0.5)
        index.remove(crowded[leaves])
        comes = ~here & (rng.random(len(crowded)) < 0.4)
        index.insert(crowded[comes], np.flatnonzero(comes).astype(np.uint32))
        here = here & ~leaves | comes
        np.testing.assert_array_equal(index.find(crowded), np.where(here, np.arange(len(crowded)), ABSENT))
