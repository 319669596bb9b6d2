# SPDX-License-Identifier: Apache-2.0
"""The state directory: whole files, no secrets, jobs found by a part of their id, old ones removed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from paddle_cluster.cli.commands import stop
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.control import job_record, store
from paddle_cluster.control.job_record import JobRecord, LoginRecord, NodeEntry
from paddle_cluster.control.status_text import detail, job_table
from paddle_cluster.control.views import ago
from paddle_cluster.errors import UsageError
from paddle_cluster.system import process_id
from paddle_cluster.system.process_id import ProcessId
from paddle_cluster.system.state_dir import (
    JOB_FILE,
    SOCKET_LIMIT,
    STATUS_FILE,
    StatePlaces,
    make_job_dir,
    own_directory,
    places,
    read_json,
    socket_paths,
    write_json,
)


@pytest.fixture
def where(tmp_path: Path) -> StatePlaces:
    return StatePlaces(tmp_path / "jobs", tmp_path / "short")


def record(job_id: str, launcher: ProcessId | None = None, age_s: float = 0.0) -> JobRecord:
    return JobRecord(
        job_id=job_id,
        submitted_at=time.time() - age_s,
        user="ann",
        launcher=launcher or process_id.own(),
        cwd="/home/ann",
        conf="/home/ann/conf.py",
        source="ws",
        mode="v2",
        detached=False,
        collected="/home/ann/ws",
        lease_s=30.0,
        nodes=(NodeEntry(0, "root@a", "root@a", "~", f"~/{job_id}", "python3", ("trainer 0",)),),
        login=LoginRecord.of(SshSettings(config=Path("/c"), known_hosts=Path("/k"))),
    )


def put(where: StatePlaces, given: JobRecord, **status: object) -> Path:
    directory = make_job_dir(where, given.job_id)
    write_json(directory / JOB_FILE, given.as_json())
    if status:
        write_json(directory / STATUS_FILE, status)
    return directory


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setfacl") is None,
    reason="makes access lists of another user with setfacl",
)
@pytest.mark.parametrize("entry", ["d:u:nobody:rwx", "u:nobody:rwx"])
def test_an_access_list_gives_no_other_user_access_to_the_state(entry: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "jobs").mkdir()
        subprocess.run(["setfacl", "-m", entry, folder, f"{folder}/jobs"], check=True)
        directory = put(StatePlaces(Path(folder, "jobs"), Path(folder, "short")), record("JOB1"))
        for command in (
            f"cat {directory / JOB_FILE}",
            f"touch {directory}/x",
            f"mv {directory} {directory}.away",
        ):
            assert subprocess.run(["sh", "-c", command], user="nobody", check=False).returncode != 0


def dead_process() -> ProcessId:
    """A process of this boot that has ended and was waited for."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return replace(process_id.own(), pid=child.pid, start=process_id.own().start + 1)


def test_a_record_comes_back_as_it_was_written(where: StatePlaces) -> None:
    given = record("JOB20260101000000-aaaaaa")
    job = store.read(put(where, given))
    assert job is not None
    assert job.record == given
    assert job.running is True


@pytest.mark.parametrize(
    "spoil",
    [
        {"version": 2},
        {"nodes": [{"node_id": 0}]},
        {"launcher": None},
        {"login": []},
        {"job_id": "JOB-other"},
        {
            "nodes": [
                {
                    "node_id": 0,
                    "name": "a",
                    "host": "-oProxyCommand=x",
                    "root_dir": "",
                    "job_dir": "",
                    "python": "",
                    "roles": [],
                }
            ]
        },
    ],
)
def test_a_record_that_is_something_else_is_no_job(where: StatePlaces, spoil: dict[str, object]) -> None:
    directory = put(where, record("JOB1"))
    write_json(directory / JOB_FILE, {**record("JOB1").as_json(), **spoil})
    assert store.all_jobs(where) == []


def test_the_directory_and_its_files_are_accessible_only_to_their_user(where: StatePlaces) -> None:
    directory = put(where, record("JOB1"), phase="run")
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_a_link_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(PermissionError, match="is a link"):
        own_directory(tmp_path / "link")


def test_a_place_that_cannot_be_written_is_replaced_by_the_short_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    where = StatePlaces(tmp_path / "file" / "jobs", tmp_path / "short")
    assert make_job_dir(where, "JOB1") == tmp_path / "short" / "JOB1"
    put(where, record("JOB1"))
    assert [job.job_id for job in store.all_jobs(where)] == ["JOB1"]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    where: StatePlaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = put(where, record("JOB1"), phase="run")
    before = set(directory.iterdir())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_json(directory / STATUS_FILE, {"phase": "stop"})
    assert read_json(directory / STATUS_FILE) == {"phase": "run"}
    assert set(directory.iterdir()) == before


def test_a_socket_path_that_is_too_long_is_put_into_the_short_place(tmp_path: Path) -> None:
    where = StatePlaces(tmp_path / ("x" * 120), Path("/tmp/paddle-0"))
    assert socket_paths(where, where.jobs / "JOB1", "JOB1") == [Path("/tmp/paddle-0/JOB1.sock")]
    for path in socket_paths(StatePlaces(Path("/s"), Path("/t")), Path("/s/JOB1"), "JOB1"):
        assert len(os.fsencode(path)) <= SOCKET_LIMIT


def test_places_follow_the_environment(tmp_path: Path) -> None:
    assert places({"HOME": "/home/ann"}).jobs == Path("/home/ann/.paddle/jobs")
    assert places({"HOME": "/home/ann", "PADDLE_STATE_DIR": str(tmp_path)}).jobs == tmp_path
    assert places({"XDG_RUNTIME_DIR": "/run/user/7"}).short == Path("/run/user/7/paddle")
    assert places({"XDG_RUNTIME_DIR": "relative"}).short == Path(f"/tmp/paddle-{os.getuid()}")


def test_a_job_is_found_by_its_id_or_a_beginning_or_end_that_no_other_has(where: StatePlaces) -> None:
    for name in ("JOB20260101000000-aaaaaa", "JOB20260101000000-bbbbbb", "JOB20260202000000-cccccc"):
        put(where, record(name))
    assert store.find(where, "bbbbbb").job_id == "JOB20260101000000-bbbbbb"
    assert store.find(where, "JOB202602").job_id == "JOB20260202000000-cccccc"
    with pytest.raises(UsageError, match=r"several jobs: .*aaaaaa"):
        store.find(where, "JOB202601")
    with pytest.raises(UsageError, match="unknown job 'dddd'"):
        store.find(where, "dddd")


def test_an_unknown_job_is_answered_with_the_most_similar_name(where: StatePlaces) -> None:
    put(where, replace(record("JOB1"), name="resnet"))
    with pytest.raises(UsageError, match="did you mean resnet"):
        store.find(where, "resnt")
    with pytest.raises(UsageError, match="did you mean resnet"):
        store.find(where, str(record("JOB1").launcher.pid))
    with pytest.raises(UsageError, match="did you mean JOB1"):
        store.find(where, "/home/ann/ws/")


def test_an_id_that_begins_another_is_still_found(where: StatePlaces) -> None:
    put(where, record("JOB1"))
    put(where, record("JOB11"))
    assert store.find(where, "JOB1").job_id == "JOB1"


def test_the_newest_running_job_is_meant_when_none_is_named(where: StatePlaces) -> None:
    put(where, record("JOB1", age_s=20))
    put(where, record("JOB2", age_s=10), exit_code=0)
    put(where, record("JOB3", launcher=dead_process()))
    assert store.newest(where).job_id == "JOB1"
    assert [job.describe() for job in store.all_jobs(where)] == ["launcher exited", "done (0)", "starting"]


def test_several_running_jobs_are_told_apart(where: StatePlaces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_STATE_DIR", str(where.jobs))
    put(where, record("JOB1", age_s=7200))
    put(where, replace(record("JOB2", age_s=180), name="resnet", source="/w/s2"))
    with pytest.raises(UsageError, match=r"stop resnet  # /w/s2, 3 min old\n.* stop JOB1  # ws, 2 h old$"):
        stop.run([])


def test_a_pid_that_was_given_to_another_process_is_not_the_launcher() -> None:
    me = process_id.own()
    assert me.is_alive() is True
    assert replace(me, start=me.start - 1).is_alive() is False
    assert replace(me, boot_id="another boot").is_alive() is False
    assert replace(me, host="another-machine").is_alive() is None


def test_a_launcher_that_died_and_was_not_waited_for_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        stat = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        launcher = replace(process_id.own(), pid=child.pid, start=int(stat[19]))
        assert launcher.is_alive() is True
        child.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert launcher.is_alive() is False
    finally:
        child.communicate()


def test_jobs_that_ended_long_ago_or_before_many_others_are_removed_and_running_ones_never(
    where: StatePlaces,
) -> None:
    month_s = 31 * 86400.0
    put(where, record("JOBold-running", age_s=2 * month_s))
    put(where, record("JOBold-ended", age_s=month_s), exit_code=0)
    for number in range(store.KEPT_JOBS + 5):
        put(where, record(f"JOB{number:03}", age_s=1000.0 - number), exit_code=0)
    store.prune(where)
    left = {job.job_id for job in store.all_jobs(where)}
    assert left == {"JOBold-running"} | {f"JOB{number:03}" for number in range(5, store.KEPT_JOBS + 5)}


def test_a_long_job_that_ended_now_is_kept(where: StatePlaces) -> None:
    directory = put(where, record("JOBlong", age_s=2 * store.KEPT_S), exit_code=0)
    os.utime(directory / JOB_FILE, (time.time() - 2 * store.KEPT_S,) * 2)
    store.prune(where)
    assert directory.exists()
    os.utime(directory / STATUS_FILE, (time.time() - store.KEPT_S - 60,) * 2)
    store.prune(where)
    assert not directory.exists()


def test_an_unreadable_job_is_removed_when_nobody_wrote_there_for_long(where: StatePlaces) -> None:
    old, new = (put(where, record(name)) for name in ("JOBold", "JOBnew"))
    for directory in (old, new):
        (directory / JOB_FILE).write_text("{")
    for file in old.iterdir():
        os.utime(file, (time.time() - store.KEPT_S - 60,) * 2)
    store.prune(where)
    assert not old.exists()
    assert new.exists()


def test_a_gone_launcher_is_told_with_what_to_do(where: StatePlaces) -> None:
    directory = put(where, record("JOB1", launcher=dead_process()), phase="run", updated_at=time.time() - 60)
    job = store.read(directory)
    assert job is not None
    text = "\n".join(detail(job, time.time()))
    assert "its launcher exited without a message" in text
    assert "paddle.py stop JOB1" in text


def test_a_large_job_is_summed_up_with_what_is_wrong_and_told_whole_on_request(where: StatePlaces) -> None:
    nodes = [{"node_id": n, "name": f"node-{n}", "state": "running"} for n in range(256)]
    processes: list[dict[str, object]] = [
        {
            "name": f"{role}-{n}",
            "role": role,
            "rank": n,
            "node": f"node-{n}",
            "state": "running",
            **({"pass_id": 1, "batch_id": 100 + n, "samples_per_s": 10.0} if role == "trainer" else {}),
            "last_line": "a line",
        }
        for role in ("pserver", "trainer")
        for n in range(256)
    ]
    processes[300] |= {"state": "exited", "code": 1}
    failures = [
        {"node": f"node-{n}", "process": f"trainer-{n}", "what": "exit code 1"} for n in range(40, 60)
    ]
    directory = put(
        where,
        record("JOB1"),
        phase="run",
        nodes=nodes,
        processes=processes,
        failures=failures,
        left=["NOT X"] * 40,
    )
    job = store.read(directory)
    assert job is not None
    lines = detail(job, time.time())
    assert len(lines) < 50
    text = "\n".join(lines)
    for words in (
        "  256 nodes: 256 running\n",
        "  256 pservers: 256 running\n",
        "  256 trainers: 255 running; 1 exited, code 1; slowest: trainer-0 on node-0, at pass 1 batch 100; "
        "fastest at pass 1 batch 355; 2,550 samples/s\n",
        "  last line of trainer-44: a line\n",
        "  details of each: paddle.py status JOB1 --all\n",
        "  failed: trainer-40 on node-40, trainer-41 on node-41, trainer-42 on node-42, trainer-43 on node-43 "
        "and 16 more: exit code 1\n",
        "  and 24 more lines like these: paddle.py status JOB1 --all",
    ):
        assert words in text
    whole = "\n".join(detail(job, time.time(), everything=True))
    assert all(f"last line of trainer-{n}" in whole for n in range(256))
    assert whole.count("NOT X") == 40


def test_what_a_process_said_cannot_act_on_the_terminal(where: StatePlaces) -> None:
    process = {"name": "trainer-0", "node": "a", "state": "running", "last_line": "\x1b[2Jgone"}
    directory = put(where, record("JOB1"), phase="run", nodes=[], processes=[process])
    job = store.read(directory)
    assert job is not None
    assert "\x1b" not in "\n".join(detail(job, time.time()) + job_table([job], time.time()))


def test_no_argument_and_no_variable_of_the_user_gets_into_job_json(tmp_path: Path) -> None:
    from paddle_cluster.config.arguments import parse
    from paddle_cluster.config.resolve import resolve
    from paddle_cluster.plan import plan

    (tmp_path / "conf.py").write_text("HOSTS = ['local']\n")
    argv = [
        "-j",
        "ws",
        f"--conf={tmp_path / 'conf.py'}",
        "--env=TOKEN=sesame",
        "--token=sesame",
        "--",
        "sesame",
    ]
    resolved = resolve(parse(argv), {"HOME": "/h"})
    built = plan.build(resolved, "JOB1")
    made = job_record.of_plan(built, tmp_path)
    assert "sesame" not in json.dumps(made.as_json())
    assert ("env", "(not stored)", "--env") in made.options
    assert ("job_workspace", "ws", "--job_workspace") in made.options
    assert made.source == "ws"


def test_status_names_a_relative_package_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paddle_cluster.config.arguments import parse
    from paddle_cluster.config.resolve import resolve
    from paddle_cluster.plan import plan

    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/train.py").write_text("pass\n")
    (tmp_path / "conf.py").write_text("HOSTS = ['local']\n")
    monkeypatch.chdir(tmp_path)
    built = plan.build(resolve(parse(["-p", "ws", "--conf=conf.py"]), {"HOME": "/h"}), "JOB1")
    assert job_record.of_plan(built, tmp_path).source == str(tmp_path / "ws")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (119, "1 min"), (7199, "1 h"), (90000, "1 d")],
)
def test_ages_are_short(seconds: float, text: str) -> None:
    assert ago(seconds) == text
