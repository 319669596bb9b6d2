# SPDX-License-Identifier: Apache-2.0
"""Jobs that are looked at and ended from other terminals, with real launchers, terminals and sockets."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.system.state_dir import JOB_FILE
from tests.cluster.deadline import wait_for
from tests.launcher.control_jobs import LIMIT_S, Bench, leftovers

CTRL_C = b"\x03"
CTRL_BACKSLASH = b"\x1c"


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("d"))  # a socket's path has room for 107 bytes
    yield bench
    bench.close()


def test_a_detached_job_outlives_its_terminal_and_is_ended_from_another(bench: Bench) -> None:
    first = bench.terminal(*bench.job("--detach"))
    job_id = first.wait_for(r"(JOB\S+) continues without this terminal")[1]
    assert f"paddle.py stop {job_id}" in first.said
    assert first.wait() == 0
    first.close()

    second = bench.terminal("attach")
    second.wait_for(r"attached to JOB\S+: Ctrl\+C stops the job")
    second.wait_for(r"\[trainer 0 local-0\] step \d+")
    second.wait_for(r"1 running  \(Ctrl\+\\ detaches, Ctrl\+C stops the job\)")
    second.close()  # the window is closed: that lets go and no more
    assert second.wait() == 129

    third = bench.terminal("attach", job_id[-6:])
    third.wait_for(r"step \d+")
    third.press(CTRL_C)
    assert third.wait() == 130
    assert "asked the job to stop" in third.said
    assert re_ended(job_id, third.said)
    assert bench.jobs()[0].exit_code == 130
    assert leftovers(bench.place) == []


def re_ended(job_id: str, said: str) -> bool:
    return f"{job_id}: stopped by Ctrl+C (exit 130)" in said


def test_the_launcher_of_a_detached_job_has_neither_terminal_nor_input_nor_a_session_of_others(
    bench: Bench,
) -> None:
    job = bench.detach()
    pid = job.record.launcher.pid
    assert os.getsid(pid) not in (os.getsid(0), pid)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    assert fields[4] == "0"  # tty_nr
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    kinds = {os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")[0] for fd in os.listdir(f"/proc/{pid}/fd")}
    assert not {name for name in kinds if name.startswith(("/dev/pts", "/dev/tty"))}


def test_what_needs_an_answer_fails_in_the_foreground(bench: Bench) -> None:
    assert bench.run("-p", "none", "--conf=conf.py", "--detach").returncode == 2
    (bench.place / "ws" / "pipe").unlink(missing_ok=True)
    os.mkfifo(bench.place / "ws" / "pipe")
    done = bench.run(*bench.job("--detach"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "pipe" in done.stderr
    (bench.place / "ws" / "pipe").unlink()
    (bench.place / "conf.py").write_text("HOSTS = ['nobody@127.0.0.1:1']\nCONNECT_TIMEOUT_S = 2\n")
    done = bench.run(*bench.job("--detach"))
    assert done.returncode == 3, done.stdout + done.stderr
    assert re.search(r"not started: nobody@127\.0\.0\.1:1: .* \(exit 3\)\n\Z", done.stdout)


def test_ctrl_c_before_the_trainers_run_stops_a_detached_job(bench: Bench) -> None:
    # a python that does not answer holds the job in preflight
    slow = bench.place / "python"
    slow.write_text("#!/bin/sh\nsleep 15\n")
    slow.chmod(0o755)
    with (bench.place / "conf.py").open("a") as conf:
        conf.write(f"PYTHON = {str(slow)!r}\n")
    terminal = bench.terminal(*bench.job("--detach"))
    terminal.wait_for("== preflight")
    terminal.press(CTRL_C)
    assert terminal.wait() == 130
    assert "continues without" not in terminal.said
    assert "no process had been started on any node" in terminal.said
    assert not re.search("== (stop|collect)", terminal.said)


def test_ctrl_c_ends_with_what_is_left_and_with_how_the_job_goes_on(bench: Bench) -> None:
    checkpoints = bench.place / "checkpoints"
    options = ("--mode=v2", f"--checkpoint_dir={checkpoints}", "--checkpoint_period=10")
    terminal = bench.terminal("-p", "ws", "--conf=conf.py", *options, "--hold")
    terminal.wait_for(r"\[trainer 0 local-0\] step \d+")
    terminal.press(CTRL_C)
    assert terminal.wait() == 130
    _, _, end = terminal.said.partition("== collect")
    assert "all processes on 1 node have exited" in end
    assert re.search(rf"to continue .* --resume=latest .*{checkpoints}", end)


def test_status_tells_of_all_jobs_and_of_one(bench: Bench) -> None:
    job = bench.detach()
    wait_for("the first line", lambda: "step" in str(bench.look(job).status), LIMIT_S)
    listed = bench.run("status")
    assert listed.returncode == 0
    assert job.job_id in listed.stdout
    told = bench.run("status", job.job_id[-6:]).stdout
    for words in (
        "run",
        "local-0",
        "trainer-0",
        "running",
        "last line of trainer-0: step",
        f"logs: {bench.place / 'ws' / 'log'}",
    ):
        assert words in told
    (found,) = json.loads(bench.run("status", "--json").stdout)
    assert (found["job_id"], found["running"], found["status"]["processes"][0]["role"]) == (
        job.job_id,
        True,
        "trainer",
    )
    assert found["status"]["processes"][0]["pid"] in leftovers(bench.place)


def test_stop_ends_one_of_two_jobs_and_the_other_goes_on(bench: Bench) -> None:
    bench.workspace("other")
    one, other = bench.detach(), bench.detach("other")
    refused = bench.run("stop")
    assert refused.returncode == 2
    assert one.job_id in refused.stderr
    done = bench.run("stop", one.job_id)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all its processes have exited" in done.stdout
    assert bench.wait_until_ended(one).exit_code == 143
    assert bench.look(other).running
    assert len(leftovers(bench.place)) >= 1
    assert bench.run("stop").returncode == 0  # the only one now
    assert bench.run("stop", other.job_id).stdout.startswith(f"{other.job_id} has already ended")


def test_a_second_job_in_the_same_workspace_is_refused_with_the_way_to_end_the_first(bench: Bench) -> None:
    job = bench.detach()
    done = bench.run(*bench.job("--detach"))
    assert done.returncode == 2
    assert f"paddle.py stop {job.job_id}" in done.stderr


def test_two_terminals_see_the_same_job_and_a_stopped_one_does_not_hold_it_up(bench: Bench) -> None:
    job = bench.detach()
    one, other = bench.terminal("attach"), bench.terminal("attach")
    for terminal in (one, other):
        terminal.wait_for(r"step \d+")
    os.kill(one.pid, signal.SIGSTOP)
    step = int(other.wait_for(r"step (\d+)\b(?!.*step)")[1])
    other.wait_for(rf"step {step + 15}\b")
    os.kill(one.pid, signal.SIGCONT)
    other.press(CTRL_BACKSLASH)
    assert other.wait() == 0
    assert f"detached from {job.job_id}" in other.said
    assert bench.look(job).running
    one.press(CTRL_C)
    assert one.wait() == 130


def test_the_screen_of_a_job_in_the_foreground_is_seen_elsewhere_too(bench: Bench) -> None:
    child = bench.start(*bench.job())
    wait_for("the job", lambda: [job for job in bench.jobs() if job.status.get("phase") == "run"], LIMIT_S)
    terminal, program = bench.terminal("attach"), bench.terminal("attach", "--json")
    terminal.wait_for(r"step \d+")
    program.wait_for(r'"event": "Printed".*step \d+')
    assert bench.run("stop").returncode == 0
    assert (terminal.wait(), program.wait()) == (143, 143)
    assert json.loads(program.said.splitlines()[-1])["event"] == "Ended"
    again = bench.run("attach", "--json")
    assert (again.returncode, json.loads(again.stdout)["code"]) == (143, 143)
    assert child.wait(LIMIT_S) == 143
    assert "asked by paddle.py stop" in (bench.place / "out").read_text()


def test_kill_9_of_an_attached_terminal_and_term_only_let_go(bench: Bench) -> None:
    job = bench.detach()
    killed, told = bench.terminal("attach"), bench.terminal("attach")
    for terminal in (killed, told):
        terminal.wait_for(r"step \d+")
    killed.kill()
    os.kill(told.pid, signal.SIGTERM)
    assert (killed.wait(), told.wait()) == (-9, 143)
    assert bench.look(job).running


def test_a_launcher_that_is_killed_is_told_everywhere(bench: Bench) -> None:
    job = bench.detach()
    terminal = bench.terminal("attach")
    terminal.wait_for(r"step \d+")
    os.kill(job.record.launcher.pid, signal.SIGKILL)
    assert terminal.wait() == 5
    assert "the job's launcher has exited" in terminal.said
    assert "launcher exited" in bench.run("status").stdout
    again = bench.run("attach")
    assert again.returncode == 5
    assert "its launcher exited without a message" in again.stderr
    wait_for("the node to end its processes", lambda: not leftovers(bench.place), LIMIT_S)


def test_a_killed_launcher_leaves_a_job_that_stop_ends_and_a_log_that_the_next_job_replaces(
    bench: Bench,
) -> None:
    killed = bench.detach()
    bench.terminal("attach").wait_for(r"step \d+")
    os.kill(killed.record.launcher.pid, signal.SIGKILL)
    wait_for("the launcher's end", lambda: bench.look(killed).running is False, LIMIT_S)
    assert bench.run("-p", "ws", "--conf=conf.py", "--mode=collective").returncode == 0
    (later,) = [job for job in bench.jobs() if job.job_id != killed.job_id]

    for _ in range(2):  # before and after its end is recorded
        logs = bench.run("logs", killed.job_id)
        assert logs.stdout == "", logs.stdout
        assert f"{killed.job_id}: its log was replaced by that of {later.job_id}" in logs.stderr
        stopped = bench.run("stop", killed.job_id)
        assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert "step 2" in bench.run("logs", later.job_id).stdout
    status = bench.run("status", killed.job_id).stdout
    assert f"{killed.job_id}: stopped (143)" in status
    assert "running" not in status
    assert "trainer-0" in status


def test_a_job_that_is_over_is_shown_with_its_last_lines_and_its_code(bench: Bench) -> None:
    assert bench.start("-p", "ws", "--conf=conf.py", "--mode=collective").wait(LIMIT_S) == 0
    done = bench.run("attach", "--lines=3")
    assert done.returncode == 0
    assert "done (exit 0)" in done.stdout
    assert len(done.stdout.splitlines()) <= 5
    logs = bench.run("logs", "--lines=2")
    assert [line.split(" ", 2)[2] for line in logs.stdout.splitlines()][1].startswith(
        f"[launcher] {bench.jobs()[0].job_id}: done"
    )
    logs = bench.run("logs", "--lines=2", "--proc=trainer-0")
    wanted = ["[trainer 0 local-0] step 1", "[trainer 0 local-0] step 2"]
    assert [line.split(" ", 2)[2] for line in logs.stdout.splitlines()] == wanted


def test_logs_are_followed_until_the_job_ends(bench: Bench) -> None:
    job = bench.detach()
    follower = bench.start("logs", "-f", "--proc=trainer", "--node=local-0", out=bench.place / "followed")
    wait_for("lines", lambda: "[trainer 0 local-0] step" in (bench.place / "followed").read_text(), LIMIT_S)
    assert bench.run("logs", "--node=nobody").returncode == 2
    assert bench.run("stop").returncode == 0
    assert follower.wait(LIMIT_S) == 0
    last = (bench.place / "ws" / "log" / "node_0" / "train.log").read_text().splitlines()[-1]
    assert (bench.place / "followed").read_text().splitlines()[-1].endswith(f"[trainer 0 local-0] {last}")
    assert bench.look(job).ended


def test_a_state_directory_that_is_removed_under_a_job_comes_back(bench: Bench) -> None:
    job = bench.detach()
    (bench.place / "state").rename(bench.place / "gone")  # the job writes into it while it is removed
    shutil.rmtree(bench.place / "gone")
    wait_for("the directory", lambda: bench.jobs() and (job.directory / "control").exists(), LIMIT_S)
    assert bench.run("stop").returncode == 0


@pytest.mark.parametrize("state", ["/proc/no/such", "/dev/null/jobs"])
def test_a_state_directory_that_cannot_be_written_stops_no_job(bench: Bench, state: str) -> None:
    bench.env["PADDLE_STATE_DIR"] = state
    done = bench.run("-p", "ws", "--conf=conf.py", "--mode=collective")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done (exit 0)" in bench.run("status").stdout or "done (0)" in bench.run("status").stdout


def test_a_state_directory_on_a_full_disk_stops_no_job_and_is_told_once(bench: Bench) -> None:
    child = bench.start(*bench.job())
    wait_for("the job", lambda: bench.jobs() and bench.jobs()[0].status.get("phase") == "run", LIMIT_S)
    (job,) = bench.jobs()
    for name in (JOB_FILE, "status.json", "screen.log"):  # every write there fails from now on
        (job.directory / name).unlink(missing_ok=True)
        (job.directory / name).mkdir()
    told = "cannot save the job's state"
    wait_for("the remark", lambda: told in (bench.place / "out").read_text(), LIMIT_S)
    wait_for("more steps", lambda: (bench.place / "out").read_text().count("step") > 30, LIMIT_S)
    child.send_signal(signal.SIGINT)
    assert child.wait(LIMIT_S) == 130
    assert (bench.place / "out").read_text().count(told) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_disk_that_is_really_full_stops_no_job(bench: Bench) -> None:
    command = ["mount", "-t", "tmpfs", "-o", "size=16k,nr_inodes=5", "tmpfs", str(bench.place / "state")]
    script = f'{shlex.join(command)}; head -c 20k /dev/zero > {bench.place}/state/filler || true; exec "$@"'
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            script,
            "sh",
            *bench.argv("-p", "ws", "--conf=conf.py", "--mode=collective"),
        ],
        cwd=bench.place,
        env=bench.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done (exit 0)" in done.stdout
    assert done.stdout.count("cannot save the job's state") == 1
    assert "No space left" in done.stdout


def test_a_job_can_be_stopped_where_no_socket_fits_into_the_runtime_directory(bench: Bench) -> None:
    long = bench.place / ("r" * 100)
    long.mkdir()
    bench.env |= {"XDG_RUNTIME_DIR": str(long), "PADDLE_STATE_DIR": str(bench.place / ("d" * 100))}
    done = bench.run(*bench.job("--detach"))
    assert done.returncode == 0, done.stderr
    stopped = bench.run("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert "all its processes have exited" in stopped.stdout


def test_a_path_that_is_too_long_for_a_socket_gets_a_short_one(bench: Bench) -> None:
    long = bench.place / ("d" * 100)
    bench.env["PADDLE_STATE_DIR"] = str(long)
    done = bench.run(*bench.job("--detach"))
    assert done.returncode == 0
    (path,) = (bench.place / "run" / "paddle").glob("*.sock")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert bench.run("stop").returncode == 0
    assert not path.exists()
