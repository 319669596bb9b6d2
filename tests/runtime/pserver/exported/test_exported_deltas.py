# SPDX-License-Identifier: Apache-2.0
"""Deltas name the rows that left a table, and the run to which they belong."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver import Reader
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.exported.folder import REMOVED, Description, read_start
from paddle.pserver.sparse.blocks import Block
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.eviction import INDEX_BYTES
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.ticks import MAX_AGE
from paddle.pserver.sparse.walk import TableRows
from paddle.pserver.tables import export
from tests.runtime.pserver.in_process_job import InProcessJob
from tests.runtime.pserver.reader.test_followed_tables import WAIT_S, follow
from tests.runtime.pserver.sparse.table_of_rows import restore

WIDTH = 4
ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1)
PLAIN = TableSpec(ParameterSpec("t", (1, WIDTH), sparse=True), Initial("normal", spread=0.1, seed=3))
ROW_BYTES = 8 * WIDTH + 4 + INDEX_BYTES
KINDS = {
    "lru": replace(PLAIN, budget=Budget(memory=120 * ROW_BYTES)),
    "score": replace(PLAIN, budget=Budget(evict="score", decay=0.7, min_score=0.4)),
    "age": replace(PLAIN, max_age=5),
    "half": replace(PLAIN, max_age=5, dtype="float16"),
    "half lru": replace(PLAIN, budget=Budget(memory=120 * (ROW_BYTES - 2 * WIDTH)), dtype="float16"),
}


def begun(job: InProcessJob, table: TableSpec, start: Path | None = None) -> TrainerSession:
    client = job.client(0)
    rows = {} if start is None else {"t": read_start(start, "", WIDTH, "adagrad")}
    client.configure([], ADAGRAD, {}, tables=[table], rows=rows)
    client.start_pass()
    return client


def reader_of(job: InProcessJob) -> Reader:
    return Reader(job.servers.connect(job.endpoints))


def push(client: TrainerSession, rng: np.random.Generator, batches: int) -> None:
    for _ in range(batches):
        ids = np.unique(rng.zipf(1.3, 60).clip(max=1 << 40) * 1_000_003)
        values = rng.standard_normal((len(ids), WIDTH)).astype(np.float32)
        client.push_pull({"t": RowGradient(ids, values)}, 1, {})


@pytest.mark.parametrize(
    ("kind", "servers", "form"),
    [
        *(
            ("lru", 1, "safetensors"),
            ("lru", 3, "safetensors"),
            ("score", 3, "safetensors"),
            ("age", 1, "npz"),
        ),
        *(("half", 3, "npz"), ("half", 1, "parquet"), ("half lru", 3, "safetensors")),
    ],
)
def test_a_base_and_deltas_are_the_table_although_rows_left_it(
    tmp_path: Path, kind: str, servers: int, form: str
) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    rng, job, table = np.random.default_rng(7), InProcessJob(1, num_dense=servers), KINDS[kind]
    with begun(job, table) as client, follow([job], every_s=0.3) as copy:
        push(client, rng, 12)
        made: Path | None = None
        removed = 0
        for _ in range(3):
            with reader_of(job) as reader:  # each reader comes in the middle
                made = export(reader, "t", tmp_path / "chain", since=made, states=True, kind=form)
            removed += Description.read(made).removed
            push(client, rng, 9)
        with reader_of(job) as reader:
            made = export(reader, "t", tmp_path / "chain", since=made, states=True, kind=form)
            whole = Description.read(export(reader, "t", tmp_path / "whole", states=True))
        assert removed > 0
        assert Description.read(made).generations == whole.generations
        copy.wait(WAIT_S, whole.clocks[0])
        assert copy.size[0] == whole.rows
        ids = np.arange(200) * 1_000_003
        rows = copy.lookup(ids).rows
        assert np.array_equal(rows, client.pull_rows("t", ids))
        assert np.array_equal(rows, rows.astype(np.float16)) == table.is_half
    other = InProcessJob(1, num_dense=2)
    wide = replace(table, max_age=0, budget=replace(table.budget, memory=0, min_score=0.0))
    with begun(other, wide, tmp_path / "chain"), reader_of(other) as reader:
        again = Description.read(export(reader, "t", tmp_path / "again", states=True))
    assert (again.rows, again.digest) == (whole.rows, whole.digest)


def test_imported_rows_are_as_old_as_in_the_last_delta(tmp_path: Path) -> None:
    job = InProcessJob(1, num_dense=1)
    with begun(job, PLAIN) as client, reader_of(job) as reader:
        client.push_pull({"t": RowGradient(np.array([1]), np.ones((1, WIDTH), np.float32))}, 1, {})
        base = export(reader, "t", tmp_path)
        for _ in range(5):
            client.push_pull({"t": RowGradient(np.array([2]), np.ones((1, WIDTH), np.float32))}, 1, {})
        export(reader, "t", tmp_path, since=base)
    pieces = list(read_start(tmp_path, "", WIDTH, "adagrad"))
    ages = {one: int(age) for piece in pieces for one, age in zip(piece.ids, piece.ages, strict=True)}
    assert abs(ages[1]) - abs(ages[2]) == 5


def test_rows_that_left_between_two_batches_are_not_in_the_table(tmp_path: Path) -> None:
    job = InProcessJob(1, num_dense=1)
    ids, ones = np.arange(20), np.ones((20, WIDTH), np.float32)
    with begun(job, replace(PLAIN, budget=Budget(evict="lfu"))) as client, reader_of(job) as reader:
        client.push_pull({"t": RowGradient(ids, ones)}, 1, {})
        client.push_pull({"t": RowGradient(ids[::2].copy(), ones[::2].copy())}, 1, {})
        base = export(reader, "t", tmp_path)
        client.shrink("t", 1.5)
        delta = export(reader, "t", tmp_path, since=base)
    assert (base.name, delta.name) == ("base-000000000002", "delta-000000000002")
    (rows,) = [each for each in read_start(tmp_path, "", WIDTH, "adagrad") if len(each.ids)]
    assert sorted(rows.ids) == ids[::2].tolist()


def test_a_number_means_no_folder_of_another_program(tmp_path: Path) -> None:
    job, rng = InProcessJob(1, num_dense=1), np.random.default_rng(1)
    (tmp_path / "model-000000000001").mkdir()
    with begun(job, PLAIN) as client, reader_of(job) as reader:
        push(client, rng, 2)
        assert export(reader, "t", tmp_path, since=1).name == "delta-000000000002"


def test_ages_stop_at_the_oldest_that_a_table_tells_apart() -> None:
    rows = TableRows(np.arange(2), np.zeros((2, WIDTH), np.float32), np.array([3, -3], np.int32), None)
    assert rows.aged(1 << 40).ages.tolist() == [3 + MAX_AGE, -3 - MAX_AGE]


def test_a_batch_of_another_run_is_refused(tmp_path: Path) -> None:
    jobs = [InProcessJob(1, num_dense=1) for _ in range(2)]
    rng = np.random.default_rng(1)
    with begun(jobs[0], PLAIN) as client, reader_of(jobs[0]) as reader:
        push(client, rng, 3)
        base = export(reader, "t", tmp_path / "a")
        push(client, rng, 1)
        delta = export(reader, "t", tmp_path / "a", since=3)
        with pytest.raises(ConfigError, match=r"table t .* batch 4, .*batch 9"):
            export(reader, "t", tmp_path / "b", since=9)
    with begun(jobs[1], PLAIN) as client, reader_of(jobs[1]) as reader:
        push(client, rng, 4)
        for since in (3, base):  # a number means the folder of that batch
            with pytest.raises(ConfigError, match=r"3 does not belong to this run of table t: .*all rows"):
                export(reader, "t", tmp_path / "a", since=since)
        export(reader, "t", tmp_path / "c")
        push(client, rng, 1)
        export(reader, "t", tmp_path / "c", since=4)
    assert len(list(read_start(tmp_path / "a", "", WIDTH, "adagrad"))) > 0
    (tmp_path / "c" / "delta-000000000005").rename(tmp_path / "a" / "delta-000000000005")
    with pytest.raises(ConfigError, match=r"000005 and delta-0.* of table t"):
        list(read_start(tmp_path / "a", "", WIDTH, "adagrad"))
    assert delta.name == "delta-000000000004"


def test_an_incomplete_chain_is_refused_instead_of_read_in_part(tmp_path: Path) -> None:
    job, rng, chain = InProcessJob(1, num_dense=1), np.random.default_rng(1), tmp_path / "chain"
    with begun(job, PLAIN) as client, reader_of(job) as reader:
        made: Path | None = None
        for _ in range(3):
            push(client, rng, 2)
            made = export(reader, "t", chain, since=made)
    base, first, last = sorted(chain.iterdir())

    def refused(why: str, path: Path = chain) -> None:
        with pytest.raises(ConfigError, match=why):
            list(read_start(path, "", WIDTH, "adagrad"))

    refused(f"{last.name} has only rows that changed after batch 4", last)
    manifest = (last / "manifest.json").read_text()
    for text in (
        "",
        manifest.replace('"clocks"', '"odd"'),
        re.sub(r'"since": \[[^]]*]', '"since": []', manifest),
    ):
        (last / "manifest.json").write_text(text)
        refused(last.name)
    (last / "manifest.json").unlink()
    refused(f"{last.name}/manifest.json: No such file or directory; expected a complete")
    shutil.rmtree(last)
    os.truncate(first / "rows-0-of-1.safetensors", 100)
    refused(first.name)
    shutil.rmtree(base)
    refused("contains no exported table")


def test_a_base_before_one_of_another_run_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for batches in (5, 3):
        job = InProcessJob(1, num_dense=1)
        with begun(job, PLAIN) as client, reader_of(job) as reader:
            push(client, rng, batches)
            if batches == 5:
                export(reader, "t", tmp_path)
            else:
                with pytest.raises(
                    ConfigError, match=r"base-000000000005 .*later batch of table t than base"
                ):
                    export(reader, "t", tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["base-000000000005"]


def test_a_restored_table_knows_the_batches_up_to_its_checkpoint() -> None:
    first = HashTable(PLAIN, ADAGRAD)
    gradient = RowGradient(np.array([5]), np.ones((1, WIDTH), np.float32))
    for _ in range(3):
        first.update([gradient], 0.1)
    snapshot = first.snapshot()
    blocks: list[Block] = []
    while (block := snapshot.next_block()) is not None:
        blocks.append(block)
    second = HashTable(PLAIN, ADAGRAD)
    restore(second, snapshot.header, blocks)
    own, earlier = second.lineage.generation, first.lineage.generation
    assert own != earlier
    known = [second.lineage.has(*each) for each in ((earlier, 3), (earlier, 4), (own, 4), (0, 9), (77, 1))]
    assert known == [True, False, True, True, False]
    assert (second.lineage.at(3), second.lineage.at(4)) == (earlier, own)


def test_folders_of_the_release_before_are_read_and_damaged_removals_are_not(tmp_path: Path) -> None:
    rng, job = np.random.default_rng(2), InProcessJob(1, num_dense=1)
    with begun(job, KINDS["lru"]) as client, reader_of(job) as reader:
        push(client, rng, 12)
        base = export(reader, "t", tmp_path)
        push(client, rng, 12)
        delta = export(reader, "t", tmp_path, since=base)
    manifest = base / "manifest.json"
    said = json.loads(manifest.read_text()) | {"version": 1}
    for name in ("removed", "generations", "follows"):
        del said[name]
    manifest.write_text(json.dumps(said))
    assert sum(len(piece.ids) for piece in read_start(tmp_path, "", WIDTH, "adagrad")) > 0
    whole = (delta / REMOVED).read_bytes()
    for wrong in (whole[:-8], whole[:-1] + bytes([whole[-1] ^ 1])):
        (delta / REMOVED).write_bytes(wrong)
        with pytest.raises(ConfigError, match=r"removed ids cannot be read|files do not match"):
            list(read_start(tmp_path, "", WIDTH, "adagrad"))


@pytest.mark.parametrize("kind", ["npz", "safetensors", "parquet"])
def test_rows_in_half_precision_are_rounded_and_take_half_the_bytes(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    rng, job = np.random.default_rng(4), InProcessJob(1, num_dense=2)
    with begun(job, PLAIN) as client, reader_of(job) as reader:
        push(client, rng, 9)
        whole = export(reader, "t", tmp_path / "whole", kind=kind)
        half = export(reader, "t", tmp_path / "half", kind=kind, dtype="float16", states=True)
        rows = {
            int(one): row
            for piece in read_start(whole, "", WIDTH, "adagrad")
            for one, row in zip(piece.ids, piece.rows, strict=True)
        }
        for piece in read_start(half, "", WIDTH, "adagrad"):
            assert piece.states is not None
            expected = np.array([rows[one] for one in piece.ids.tolist()]).astype(np.float16)
            assert np.array_equal(piece.rows, expected.astype(np.float32))
        plain = export(reader, "t", tmp_path / "plain", kind=kind, dtype="float16")
        sizes = [sum(each.stat().st_size for each in made.glob("rows-*")) for made in (whole, plain)]
        if kind != "parquet":
            assert sizes[0] - sizes[1] == pytest.approx(2 * WIDTH * len(rows), abs=100)
        with pytest.raises(ConfigError, match="dtype: expected one of float32, float16, got 'int8'"):
            export(reader, "t", tmp_path / "odd", dtype="int8")


def test_values_beyond_half_precision_are_refused(tmp_path: Path) -> None:
    job = InProcessJob(1, num_dense=1)
    client = job.client(0)
    client.configure([], OptimizerSpec("sgd", learning_rate=1.0), {}, tables=[PLAIN])
    client.start_pass()
    with client, reader_of(job) as reader:
        client.push_pull({"t": RowGradient(np.array([7]), np.full((1, WIDTH), 1e5, np.float32))}, 1, {})
        with pytest.raises(ConfigError, match=r"row 7 contains 100000, .*float16; .*float32"):
            export(reader, "t", tmp_path, dtype="float16")
        assert not list(tmp_path.iterdir())
