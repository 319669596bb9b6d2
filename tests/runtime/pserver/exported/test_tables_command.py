# SPDX-License-Identifier: Apache-2.0
"""`paddle.py tables` beside a real server: list, export, import."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paddle.pserver import Client, GrowingTable, OptimizerSpec, Reader
from paddle.pserver.exported.folder import Description
from paddle.pserver.tables import Saved, export
from tests.runtime.pserver.neutral_job import run, server
from tests.runtime.pserver.pserver_process import KEY, ROOT

IDS = np.arange(-20, 300, 7)


def tables(*words: str) -> subprocess.CompletedProcess[str]:
    return launcher("tables", *words)


def launcher(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "paddle.py"), *words],
        env=os.environ | {"PADDLE_JOB_KEY": KEY},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_running_job_is_listed_and_exported_and_its_checkpoint_has_the_same_rows(tmp_path: Path) -> None:
    saves = (f"--checkpoint_dir={tmp_path / 'saved'}", "--checkpoint_period=2")
    with server(1, *saves) as process:

        def work(client: Client, trainer: int) -> None:
            client.create({"users": GrowingTable(4)}, OptimizerSpec("adagrad", learning_rate=0.1))
            for _ in range(2):
                client.push_pull({"users": (IDS, np.ones((len(IDS), 4), np.float32))}, {})
            servers = f"--servers={','.join(process.endpoints)}"
            done = tables("list", servers)
            assert done.stdout == "users: rows of width 4, adagrad, 1 server\n", done.stderr
            where = f"--to={tmp_path / 'made'}"
            done = tables("export", servers, "--table=users", where, "--states", "--json")
            said = json.loads(done.stdout)
            assert (said["rows"], said["clocks"], said["states"]) == (len(IDS), [2], 4), done.stderr
            done = tables("export", servers, "--table=others", where)
            assert done.returncode == 1
            assert "no growing table is named others; known: users" in done.stderr
            client.barrier()

        run(process, 1, work)
        process.end()
    saved = export(Saved(tmp_path / "saved", 2), "users", tmp_path / "again", states=True)
    (made,) = (tmp_path / "made").iterdir()
    assert (
        json.loads((saved / "manifest.json").read_text())["digest"]
        == json.loads((made / "manifest.json").read_text())["digest"]
    )


def test_a_delta_continues_the_base_of_a_job_from_its_checkpoint_and_from_the_job_that_resumed_it(
    tmp_path: Path,
) -> None:
    saves = (f"--checkpoint_dir={tmp_path / 'saved'}", "--checkpoint_period=2")
    folders: list[Path] = []

    def work(client: Client, trainer: int) -> None:
        client.create({"users": GrowingTable(4)}, OptimizerSpec("adagrad", learning_rate=0.1))
        for ids in (IDS, IDS[:5]):
            client.push_pull({"users": (ids, np.ones((len(ids), 4), np.float32))}, {})
        with Reader.connect(process.endpoints, job_key=KEY) as reader:
            since = folders[0] if folders else None
            folders.append(export(reader, "users", tmp_path / "made", since=since))
        client.barrier()

    with server(1, *saves) as process:
        run(process, 1, work)
        process.end()
    of_files = export(Saved(tmp_path / "saved", 2), "users", tmp_path / "of_files", since=folders[0])
    with server(1, *saves, "--resume=latest") as process:
        run(process, 1, work)
        process.end()
    base, same, delta = (Description.read(each) for each in (folders[0], of_files, folders[1]))
    assert (same.follows, same.generations, same.rows) == (base.generations, base.generations, 0)
    assert (delta.since, delta.follows, delta.rows) == ((2,), base.generations, len(IDS))
    assert delta.generations != base.generations


def test_a_file_of_numpy_becomes_an_exported_table(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", weight=np.ones((5, 3), np.float32))
    done = tables("import", str(tmp_path / "model.npz"), "--table=emb", f"--to={tmp_path / 'emb'}")
    assert done.returncode == 0, done.stderr
    assert "base-000000000000: 5 rows of width 3, digest " in done.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("tables", "tables: arguments are missing"),
        ("tables export", "tables export: .*--table"),
        ("tables list --sorted", "tables: .*--sorted"),
        ("tables frob", "tables: .*'frob'.*'export'"),
        ("serve", "serve: arguments are missing"),
        ("serve --port=99999", "serve: .*--port.* 65535"),
        ("serve folder", "serve: .*folder"),
    ],
)
def test_wrong_arguments_are_named(words: str, why: str) -> None:
    done = launcher(*words.split())
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert re.match(rf"paddle\.py: {why}.*`paddle\.py (tables|serve)[a-z ]* --help`", line)


def test_a_missing_token_file_is_named() -> None:
    done = launcher("serve", "--servers=127.0.0.1:1", "--token_file=none/here")
    assert done.returncode == 1
    assert re.fullmatch(r"paddle\.py: serve: --token_file: .*none/here.*\n", done.stderr)
