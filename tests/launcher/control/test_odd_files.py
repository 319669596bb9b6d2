# SPDX-License-Identifier: Apache-2.0
"""Files that are not what they should be: pipes, devices, other versions, other types, far too much."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_cluster.config.conf_file import read_conf
from paddle_cluster.control import status_text, store
from paddle_cluster.dashboard import changes
from paddle_cluster.dashboard.job_board import JobBoard
from paddle_cluster.errors import ConfError
from paddle_cluster.system.state_dir import JOB_FILE, STATUS_FILE, StatePlaces, make_job_dir, write_json

ROOT = Path(__file__).resolve().parents[3]
JOB = "JOB20260101000000-aaaaaa"
RECORD: dict[str, Any] = {
    "version": 1,
    **dict.fromkeys(("user", "cwd", "conf", "source", "collected"), "x"),
    "job_id": JOB,
    "mode": "v2",
    "submitted_at": 1e9,
    "launcher": {"host": "elsewhere", "pid": 7, "start": 7, "boot_id": ""},
    "detached": False,
    "lease_s": 30.0,
    "nodes": [
        {
            "node_id": 0,
            "name": "a",
            "host": "a",
            "root_dir": "/r",
            "job_dir": "/r/j",
            "python": "python3",
            "roles": ["trainer 0"],
        }
    ],
    "login": {
        "config": "",
        "known_hosts": "",
        "identity_files": [],
        "jump": "",
        "connect_timeout_s": 10.0,
    },
}
STATUS: dict[str, Any] = {
    "version": 1,
    "phase": "run",
    "exit_code": None,
    "updated_at": 1e9,
    "nodes": [{"node_id": 0, "name": "a", "heard_at": 1e9}],
    "processes": [{"name": "trainer-0", "pid": 7, "pass_id": 1, "batch_id": 2, "cost": 0.5, "code": None}],
    "failures": [{"node": "a", "what": "lost"}],
    "why": ["because"],
    "left": [],
}

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture
def where(tmp_path: Path) -> StatePlaces:
    """Places with one job, which ran elsewhere."""
    places = StatePlaces(tmp_path / "jobs", tmp_path / "short")
    directory = make_job_dir(places, JOB)
    write_json(directory / JOB_FILE, RECORD)
    write_json(directory / STATUS_FILE, STATUS)
    return places


def paddle(where: StatePlaces, *argv: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "paddle.py"), *argv],
        env={**os.environ, "PADDLE_STATE_DIR": str(where.jobs)},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )


def spoiled(value: dict[str, Any], path: list[str], odd: object) -> dict[str, Any]:
    """A copy in which one thing is something else; a path goes through the first elements of lists."""
    copy = json.loads(json.dumps(value))
    place = copy
    for name in path[:-1]:
        place = place[name][0] if isinstance(place[name], list) else place[name]
    place[path[-1]] = odd
    return dict(copy)


def paths(value: dict[str, Any]) -> list[list[str]]:
    found = []
    for name, inner in value.items():
        found.append([name])
        first = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(first, dict):
            found += [[name, *rest] for rest in paths(first)]
    return found


@given(odd=ANYTHING, data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_in_a_state_file_is_shown_or_left_out(
    where: StatePlaces, odd: object, data: st.DataObject
) -> None:
    directory = where.jobs / JOB
    for name, value in ((JOB_FILE, RECORD), (STATUS_FILE, STATUS)):
        path = data.draw(st.sampled_from(paths(value)))
        (directory / name).write_text(json.dumps(spoiled(value, path, odd)))
    for job in store.all_jobs(where):
        assert status_text.job_table([job], 2e9)
        assert status_text.detail(job, 2e9)
        json.dumps(status_text.as_json(job))
    changes.as_text(changes.everything(JobBoard(where), JOB))


def test_a_path_that_nothing_can_open_is_no_jobs(where: StatePlaces) -> None:
    write_json(where.jobs / JOB / JOB_FILE, {**RECORD, "collected": "a\0b"})
    assert store.all_jobs(where) == []
    assert len(store.unreadable(where)) == 1


def test_a_status_of_another_version_is_told_and_not_read(where: StatePlaces) -> None:
    write_json(where.jobs / JOB / STATUS_FILE, {**STATUS, "version": 99, "phase": 5})
    (job,) = store.all_jobs(where)
    assert "version of" in job.describe()


def test_a_pipe_in_the_place_of_a_state_file_is_not_waited_for(where: StatePlaces) -> None:
    status = where.jobs / JOB / STATUS_FILE
    status.unlink()
    os.mkfifo(status)
    done = paddle(where, "status")
    assert (done.returncode, JOB in done.stdout, done.stderr) == (0, True, "")


def test_pipes_and_directories_in_the_place_of_logs_hold_nobody_up(
    where: StatePlaces, tmp_path: Path
) -> None:
    write_json(where.jobs / JOB / JOB_FILE, {**RECORD, "collected": str(tmp_path / "ws")})
    write_json(where.jobs / JOB / STATUS_FILE, {**STATUS, "phase": "ended", "exit_code": 0})
    os.mkfifo(where.jobs / JOB / "screen.log")
    folder = tmp_path / "ws" / "log" / "node_0"
    folder.mkdir(parents=True)
    os.mkfifo(folder.parent / "job.log")
    (folder.parent / "job.log.1").mkdir()
    for words in (["attach", JOB], ["logs", JOB], ["logs", "-f", JOB]):
        done = paddle(where, *words)
        assert "Traceback" not in done.stderr
        assert done.returncode == 0, (words, done.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_answer_that_cannot_be_written_is_an_error(where: StatePlaces) -> None:
    for words in (["status", "--json"], ["--version"], ["help", "logs"]):
        full = os.open("/dev/full", os.O_WRONLY)
        try:
            done = paddle(where, *words, stdout=full)
        finally:
            os.close(full)
        assert (done.returncode, done.stderr) == (
            1,
            "paddle.py: cannot write to standard output: No space left on device\n",
        )


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "GeneratorExit", "BaseException"])
def test_whatever_a_conf_raises_is_told_with_its_line(tmp_path: Path, name: str) -> None:
    conf = tmp_path / "conf.py"
    conf.write_text(f"HOSTS = []\nraise {name}('mine')\n")
    with pytest.raises(ConfError, match=rf"conf.py:2: running it raised {name}: mine"):
        read_conf(conf)


@pytest.mark.parametrize("encoding", ["", "utf-8", "UTF_8", "utf8", "utf-8-unix", "utf-8-sig"])
def test_a_comment_in_another_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    head = f"# -*- coding: {encoding} -*-\n".encode() if encoding else b""
    conf = tmp_path / "conf.py"
    conf.write_bytes(head + b"HOSTS = ['a']\n# caf\xe9\n")
    line = 2 + head.count(b"\n")
    with pytest.raises(ConfError, match=rf"conf.py:{line}: byte 0xe9 .*UTF-8"):
        read_conf(conf)


def test_a_conf_may_name_its_encoding(tmp_path: Path) -> None:
    conf = tmp_path / "conf.py"
    conf.write_bytes(b"#!/usr/bin/python\n# vim: set fileencoding=latin-1 :\nHOSTS = ['caf\xe9']  # \xe9\n")
    assert read_conf(conf).values == {"HOSTS": ["caf\xe9"]}


def test_a_conf_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfError, match=r"/dev/zero: cannot be read: .* 4 MiB"):
        read_conf(Path("/dev/zero"))


def test_a_conf_may_come_through_a_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"HOSTS = ['a']\n")
        os.close(writing)
        assert read_conf(Path(f"/dev/fd/{reading}")).values == {"HOSTS": ["a"]}
    finally:
        os.close(reading)


def test_a_job_json_that_cannot_be_read_is_told_and_hurts_no_other_job(where: StatePlaces) -> None:
    other = JOB.replace("aaaaaa", "bbbbbb")
    directory = make_job_dir(where, other)
    (directory / JOB_FILE).write_text('{"version": 1, "submitted_at": ' + "9" * 400 + "}")
    for words in (["status"], ["status", "--json"], ["status", JOB]):
        done = paddle(where, *words)
        assert (done.returncode, JOB in done.stdout) == (0, True), done.stderr
        assert "Traceback" not in done.stderr
    assert f"{other}: cannot read {directory / JOB_FILE}" in paddle(where, "status").stderr
    for command in ("attach", "logs", "stop"):
        done = paddle(where, command, other)
        assert (done.returncode, f"{other}: " in done.stderr) == (2, True), done.stderr


def test_a_job_json_that_cannot_be_read_makes_way_for_one_from_the_nodes(where: StatePlaces) -> None:
    directory = where.jobs / JOB
    assert not store.move_unreadable_aside(directory)
    (directory / JOB_FILE).write_text("{")
    assert store.move_unreadable_aside(directory)
    assert sorted(os.listdir(directory)) == ["job.unreadable", STATUS_FILE]


def test_a_status_that_cannot_be_read_is_told(where: StatePlaces) -> None:
    (where.jobs / JOB / STATUS_FILE).write_text("{")
    (job,) = store.all_jobs(where)
    assert job.describe().startswith("unknown (status.json cannot be read)")


@pytest.mark.parametrize(
    "odd", ["9" * 400, "-" + "9" * 400, "1e999", "NaN", "[" * 900 + "]" * 900, "9" * 5000]
)
@pytest.mark.parametrize("name", ["exit_code", "updated_at", "ended_at", "version"])
def test_no_number_and_no_depth_in_a_status_stops_a_command(where: StatePlaces, name: str, odd: str) -> None:
    fields = json.dumps({**STATUS, name: "ODD"}).replace('"ODD"', odd)
    (where.jobs / JOB / STATUS_FILE).write_text(fields)
    (job,) = store.all_jobs(where)
    assert status_text.job_table([job], 2e9)
    assert status_text.detail(job, 2e9)
    json.dumps(status_text.as_json(job), allow_nan=False)
    changes.as_text(changes.everything(JobBoard(where), JOB))


def test_commands_go_on_over_a_status_with_a_number_of_400_digits(where: StatePlaces, tmp_path: Path) -> None:
    (tmp_path / "ws" / "log").mkdir(parents=True)
    here = {"host": os.uname().nodename, "pid": 7, "start": 7, "boot_id": "gone"}
    write_json(
        where.jobs / JOB / JOB_FILE,
        {**RECORD, "collected": str(tmp_path / "ws"), "launcher": here, "nodes": []},
    )
    status = json.dumps(STATUS).replace("1000000000.0", "9" * 400)
    (where.jobs / JOB / STATUS_FILE).write_text(status)
    expected = {"status": 0, "logs": 0, "attach": 5, "stop": 0}
    for command, code in expected.items():
        done = paddle(where, command, JOB)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, (command, done.stdout, done.stderr)


@pytest.mark.parametrize("odd", [["x"], "n" * 300, "a\0b", "\ud800", 7])
def test_a_record_whose_paths_nothing_can_open_is_left_aside(where: StatePlaces, odd: object) -> None:
    write_json(where.jobs / JOB / JOB_FILE, {**RECORD, "collected": odd})
    assert store.all_jobs(where) == []
    assert len(store.unreadable(where)) == 1


@pytest.mark.parametrize("name", ["a b", "a\nb", "é", "a\udcff"])
def test_a_record_of_a_workspace_with_any_name_is_read(where: StatePlaces, name: str) -> None:
    write_json(where.jobs / JOB / JOB_FILE, {**RECORD, "collected": f"/w/{name}"})
    (job,) = store.all_jobs(where)
    assert job.record.collected == f"/w/{name}"
