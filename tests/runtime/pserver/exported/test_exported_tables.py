# SPDX-License-Identifier: Apache-2.0
"""Tables as files: what a job exports, another one begins with, whatever the number of its servers."""

from __future__ import annotations

import errno
import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver import GrowingTable, Initial, Reader
from paddle.pserver.client.declaration import declare
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.exported.columns import PIECE, Spool
from paddle.pserver.exported.folder import Description, FolderWriter, read_start
from paddle.pserver.exported.formats import read_file
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.walk import Cursor, TableRows
from paddle.pserver.tables import convert, export, listed
from tests.runtime.pserver.in_process_job import InProcessJob

WIDTH = 3
ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1)
USERS = TableSpec(ParameterSpec("users", (1, WIDTH), sparse=True), Initial("normal", spread=0.1, seed=3))
KINDS = ["npz", "safetensors"]


def push(client: TrainerSession, seed: int, ids: np.ndarray) -> None:
    values = np.random.default_rng(seed).standard_normal((len(ids), WIDTH)).astype(np.float32)
    client.push_pull({"users": RowGradient(np.sort(ids), values)}, 1, {})


def begun(job: InProcessJob, rows: Any = (), tables: Any = (USERS,)) -> TrainerSession:
    client = job.client(0)
    client.configure([], ADAGRAD, {}, tables=tables, rows={"users": rows} if rows else {})
    client.start_pass()
    return client


def reader_of(job: InProcessJob) -> Reader:
    return Reader(job.servers.connect(job.endpoints))


def ids_of(seed: int, n: int = 700) -> np.ndarray:
    return np.unique(np.random.default_rng(seed).integers(-(2**62), 2**62, n))


def content(path: Path, **how: Any) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for piece in read_start(path, "", WIDTH, how.get("rule", "adagrad")):
        for i, one in enumerate(piece.ids.tolist()):
            kept = b"" if piece.states is None else piece.states[i].tobytes()
            found[one] = piece.rows[i].tobytes() + kept
    return found


@pytest.mark.parametrize("kind", [*KINDS, "parquet"])
def test_a_table_that_went_through_files_is_the_same_on_three_servers_and_trains_on_alike(
    tmp_path: Path, kind: str
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    job = InProcessJob(1, num_dense=2)
    with begun(job) as client, reader_of(job) as reader:
        for step in range(3):
            push(client, step, ids_of(step))
        assert [(each.name, each.width, each.rule, each.servers) for each in listed(reader)] == [
            ("users", WIDTH, "adagrad", 2)
        ]
        first = export(reader, "users", tmp_path / "a", states=True, kind=kind)
        said = Description.read(first)
        assert (first.name, said.clocks, len(said.files)) == ("base-000000000003", (3, 3), 2)
        assert said.rows == len(np.unique(np.concatenate([ids_of(step) for step in range(3)])))
        push(client, 9, ids_of(0))
        ids = np.concatenate([ids_of(0), ids_of(5)])
        expected = client.pull_rows("users", ids)
    other = InProcessJob(1, num_dense=3)
    rows = read_start(tmp_path / "a", "", WIDTH, "adagrad")
    with begun(other, rows) as client, reader_of(other) as reader:
        second = export(reader, "users", tmp_path / "b", states=True, kind=kind)
        again = Description.read(second)
        assert (again.digest, again.rows, len(again.files)) == (said.digest, said.rows, 3)
        push(client, 9, ids_of(0))  # with the states that came along
        assert np.array_equal(client.pull_rows("users", ids), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_base_and_its_deltas_are_the_table(tmp_path: Path) -> None:
    job = InProcessJob(1, num_dense=2)
    with begun(job) as client, reader_of(job) as reader:
        push(client, 0, ids_of(0))
        base = export(reader, "users", tmp_path, states=True)
        push(client, 1, ids_of(1, 20))
        push(client, 2, ids_of(0)[:5])
        first = export(reader, "users", tmp_path, since=base, states=True)
        push(client, 3, ids_of(0)[3:9])
        second = export(reader, "users", tmp_path, since=first, states=True)
        assert [Description.read(each).rows for each in (first, second)] == [len(ids_of(1, 20)) + 5, 6]
        assert Description.read(export(reader, "users", tmp_path / "number", since=3)).rows == 6
        assert Description.read(export(reader, "users", tmp_path / "nothing", since=4)).rows == 0
        whole = export(reader, "users", tmp_path / "whole", states=True)
        assert content(tmp_path) == content(whole)
        with pytest.raises(ConfigError, match=r"delta-000000000004: .*directory"):
            export(reader, "users", tmp_path, since=first)
    first.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="changes after batch 3, but base-000000000001 "):
        content(tmp_path)


def test_a_directory_with_several_tables_does_not_give_one_the_rows_of_another(tmp_path: Path) -> None:
    job, others = (
        InProcessJob(1, num_dense=1),
        replace(USERS, parameter=replace(USERS.parameter, name="others")),
    )
    with begun(job, tables=[USERS, others]) as client, reader_of(job) as reader:
        push(client, 0, ids_of(0, 9))
        mine = export(reader, "users", tmp_path)
        client.push_pull({"others": RowGradient(ids_of(1, 5), np.ones((5, WIDTH), np.float32))}, 1, {})
        push(client, 1, ids_of(0, 9))
        export(reader, "others", tmp_path)
    with pytest.raises(ConfigError, match="contains tables others, users: name the directory of one"):
        content(tmp_path)
    assert len(content(mine)) == 9


def test_changes_before_a_decay_of_all_rows_are_not_known_and_that_is_said(tmp_path: Path) -> None:
    decaying = TableSpec(ParameterSpec("users", (1, WIDTH), sparse=True, l2=0.1))
    job = InProcessJob(1, num_dense=1)
    with begun(job, tables=[decaying]) as client, reader_of(job) as reader:
        push(client, 0, ids_of(0))
        base = export(reader, "users", tmp_path)
        push(client, 1, ids_of(0))
        client.finish_pass()
        client.start_pass()
        with pytest.raises(ConfigError, match=r"after batch .*base-000000000001.*decay"):
            export(reader, "users", tmp_path, since=base)
    assert [path.name for path in tmp_path.iterdir()] == [base.name]


def test_a_walk_beside_training_gives_each_row_once_in_pieces_of_bounded_size() -> None:
    wide = TableSpec(ParameterSpec("users", (1, 4096), sparse=True), Initial("constant"))
    job = InProcessJob(1, num_dense=1)
    ids = ids_of(0, 150)
    with begun(job, tables=[wide]) as client, reader_of(job) as reader:
        values = np.ones((len(ids), 4096), np.float32)
        client.push_pull({"users": RowGradient(ids, values)}, 1, {})
        seen: list[int] = []
        for piece in reader.walk("users", 0, states=True):
            assert len(piece.ids) <= (1 << 18) // (3 * 4096)
            seen += piece.ids.tolist()
            client.push_pull({"users": RowGradient(ids, values)}, 1, {})
        assert sorted(seen) == ids.tolist()
        walk = reader.walk("users", 0, since=1)
        assert sum(len(piece.ids) for piece in walk) == len(ids)
        assert walk.since == 1


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_other_programs_are_read(tmp_path: Path, kind: str) -> None:
    weight = np.random.default_rng(0).standard_normal((50, WIDTH)).astype(np.float32)
    path = tmp_path / f"model.{kind}"
    arrays = {
        "emb.weight": weight,
        "fc.weight": np.ones((2, 2), np.float32),
        "fc.bias": np.ones(2, np.float32),
    }
    save(path, arrays)
    with pytest.raises(ConfigError, match=r"has .*emb.weight \(50, 3\).* as key"):
        list(read_file(path))
    folder = convert(path, tmp_path / "made", table="users", key="emb.weight")
    declared = declare({"users": GrowingTable(WIDTH, start=folder)}, {})
    job = InProcessJob(1, num_dense=2)
    with begun(job, declared.rows(ADAGRAD)["users"]) as client:
        assert np.array_equal(client.pull_rows("users", np.arange(50)), weight)
    declared = declare({"users": GrowingTable(WIDTH, start=(path, "emb.weight"))}, {})
    assert sum(len(piece.ids) for piece in declared.rows(ADAGRAD)["users"]) == 50


def save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    if path.suffix == ".npz":
        np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
        return
    header, at = {}, 0
    for name, array in arrays.items():
        kind = {"float32": "F32", "float16": "F16", "int64": "I64", "uint16": "BF16", "bool": "BOOL"}[
            str(array.dtype)
        ]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in arrays.values()))


def test_half_precision_of_a_file_becomes_float32(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5, 0.15625]], np.float32)
    for name, array in (
        ("f16", values.astype(np.float16)),
        ("bf16", (values.view(np.uint32) >> 16).astype(np.uint16)),
    ):
        save(path := tmp_path / f"{name}.safetensors", {"ids": np.array([-7]), "rows": array})
        (piece,) = read_file(path)
        assert piece.ids.tolist() == [-7]
        assert np.array_equal(piece.rows, values)


@pytest.mark.parametrize("name", ["model.pt", "model.bin", "pytorch_model.pkl"])
def test_a_pickle_is_not_opened_and_the_line_that_writes_something_else_is_given(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(ConfigError, match=r"is a pickle, and reading a pickle can run (?s:.*)numpy.savez\('"):
        list(read_file(tmp_path / name))


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_a_damaged_export_is_refused_in_our_words(tmp_path: Path, kind: str) -> None:
    job = InProcessJob(1, num_dense=1)
    with begun(job) as client, reader_of(job) as reader:
        push(client, 0, ids_of(0, 40))
        folder = export(reader, "users", tmp_path, states=True, kind=kind)
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(60):
        path = list(whole)[rng.integers(len(whole))]
        data = bytearray(whole[path])
        at = int(rng.integers(len(data)))
        if rng.random() < 0.3:
            del data[at:]
        else:
            data[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            content(folder)
        except ConfigError:
            refused += 1
        path.write_bytes(whole[path])
    assert refused > 45  # ages and what manifests only tell are not covered


def test_what_a_peer_may_not_send_is_refused() -> None:
    job = InProcessJob(1, num_dense=1)
    good = TableRows(np.arange(2), np.ones((2, WIDTH), np.float32), np.zeros(2, np.int32), None)
    scored = replace(USERS, budget=Budget(evict="lfu"))
    for wrong, why in (
        (good._replace(rows=np.ones((2, 5), np.float32)), "rows of width 3, got 5"),
        (good._replace(rows=np.ones((2, 4), np.float32)), r"expected \(2, 3\) float32"),
        (good._replace(rows=np.full((2, WIDTH), np.nan, np.float32)), "contains NaN"),
        (good._replace(ids=np.zeros(2, np.int64)), "an id is repeated"),
        (good._replace(states=np.zeros((2, 5), np.float32)), r"expected \(2, 3\) float32, got \(2, 5\)"),
        (good._replace(states=np.full((2, 3), np.inf, np.float32)), "states of rows contain NaN"),
    ):
        table = scored if "rows of" in why else USERS
        with job.client(0) as client, pytest.raises(PserverError, match=why):
            client.configure([], ADAGRAD, {}, tables=[table], rows={"users": Pieces([wrong])})
        job = InProcessJob(1, num_dense=1)


class Pieces:
    """Rows that are not cut by their length."""

    def __init__(self, pieces: list[TableRows]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Any:
        return iter(self._pieces)


def test_a_cursor_outside_of_a_table_finds_nothing() -> None:
    job = InProcessJob(1, num_dense=1)
    with begun(job) as client:
        push(client, 0, ids_of(0, 40))
        with reader_of(job) as reader:
            table = reader.walk("users", 0)
            assert sum(len(piece.ids) for piece in table) == 40
            with pytest.raises(ConfigError, match="no growing table is named others; known: users"):
                reader.walk("others", 0)
    assert Cursor(1 << 40, 1 << 63).is_over


def test_writers_side_by_side_finish_and_what_a_killed_one_left_is_removed(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", ids=np.arange(4), rows=np.ones((4, WIDTH), np.float32))
    to = tmp_path / "to"
    (to / ".unfinished-7-dead").mkdir(parents=True)
    with FolderWriter(to, "npz") as living:
        made = convert(tmp_path / "a.npz", to, table="users")
        assert len(list(to.glob(".unfinished-*"))) == 1
        living.publish(Description("users", WIDTH, None, "", (), (9,)))
    assert sorted(each.name for each in to.iterdir()) == [made.name, "base-000000000009"]


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    np.savez(tmp_path / "a.npz", ids=np.arange(4), rows=np.ones((4, WIDTH), np.float32))
    monkeypatch.setattr(Spool, "add", full)
    with pytest.raises(ConfigError, match=r"cannot write the table to .*No space left on device"):
        convert(tmp_path / "a.npz", tmp_path / "to", table="users")
    assert not list((tmp_path / "to").iterdir())


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"ages": np.zeros((4, 2), np.int32)}, r"ages .*\(4,\).*int32.*\(4, 2\)"),
        ({"ages": np.full(4, 1 << 40)}, "expected int32"),
        ({"states": np.zeros(4, np.float32)}, r"states .* 4 rows.*\(4,\)"),
        ({"rows": np.zeros((4, 0), np.float32)}, r"\(4, 0\)"),
        ({"ids": np.array([0, 1, 2, 1 << 63], np.uint64)}, "id 9223372036854775808 .*int64"),
        ({"ids": np.zeros((4, 2), np.int64)}, r"ids .*int64 of shape \(4, 2\)"),
        ({"ids": np.arange(4.0)}, r"ids .*float64 of shape \(4,\)"),
        ({"rows": np.ones((WIDTH, 4), np.float32).T}, r"\(4, 3\).*Fortran order.*numpy.ascontig"),
        ({"rows": np.array([{}] * 4, object)}, r"an array \(4,\) object: expected numbers"),
    ],
)
def test_odd_arrays_of_a_file_are_refused(tmp_path: Path, odd: dict[str, np.ndarray], why: str) -> None:
    good = {"ids": np.arange(4), "rows": np.ones((4, WIDTH), np.float32)}
    np.savez(tmp_path / "a.npz", **(good | odd))
    with pytest.raises(ConfigError, match=why):
        list(read_file(tmp_path / "a.npz"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_models_file_has_arrays_of_other_kinds(tmp_path: Path, kind: str) -> None:
    weight = np.random.default_rng(0).standard_normal((50, WIDTH)).astype(np.float32)
    others = {"bn.num_batches": np.array(7), "conv": np.ones((2, 2, 3, 3), np.float32)}
    save(path := tmp_path / f"model.{kind}", {"emb": weight, "mask": np.ones(3, bool), **others})
    (piece,) = read_file(path, is_foreign=True)
    assert np.array_equal(piece.rows, weight)
    with pytest.raises(ConfigError, match=r"the file has .*mask \(3,\)"):
        list(read_file(path, "mask"))


def test_the_ids_of_a_matrix_are_never_guessed(tmp_path: Path) -> None:
    ids, rows = np.array([9, -4, 5], ">i4"), np.ones((3, WIDTH), ">f8")
    save(tmp_path / "a.npz", {"ids": ids, "emb": rows})
    (piece,) = read_file(tmp_path / "a.npz", "emb")
    assert piece.ids.tolist() == [9, -4, 5]
    assert [str(each.dtype) for each in (piece.ids, piece.rows)] == ["int64", "float32"]
    save(tmp_path / "b.npz", {"user_id": ids, "emb": rows})
    with pytest.raises(ConfigError, match=r"ids of emb could be user_id; .* ids and rows, .* the key emb"):
        list(read_file(tmp_path / "b.npz"))
    (piece,) = read_file(tmp_path / "b.npz", "emb")
    assert piece.ids.tolist() == [0, 1, 2]


def test_a_repeated_id_is_found_before_any_row_is_used(tmp_path: Path) -> None:
    ids = np.arange(PIECE // WIDTH + 9)  # two pieces
    ids[-1] = ids[3]
    np.savez(tmp_path / "a.npz", ids=ids, rows=np.ones((len(ids), WIDTH), np.float32))
    with pytest.raises(ConfigError, match=r"a.npz: id 3 is repeated"):
        next(read_file(tmp_path / "a.npz", is_foreign=True))
    with pytest.raises(ConfigError, match=r"a.npz: id 3 is repeated"):
        convert(tmp_path / "a.npz", tmp_path / "to", table="users")
    assert not list((tmp_path / "to").iterdir())


def test_compressed_archives_of_all_kinds_are_refused_when_damaged(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    with io.BytesIO() as file:
        np.save(file, rng.standard_normal((40, WIDTH)).astype(np.float32))
        whole = file.getvalue()
    for how in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        path = tmp_path / f"{how}.npz"
        with zipfile.ZipFile(path, "w", how) as archive:
            archive.writestr("w.npy", whole)
        data, refused = path.read_bytes(), 0
        for _ in range(40):
            odd = bytearray(data)
            odd[rng.integers(len(odd) // 2)] ^= 0xFF
            path.write_bytes(odd)
            try:
                list(read_file(path))
            except ConfigError:
                refused += 1
        assert refused > 20
