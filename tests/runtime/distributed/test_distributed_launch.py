# SPDX-License-Identifier: Apache-2.0
"""`python -m paddle.distributed.launch` and `launch_ps`, run as users run them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.deadline import wait_for
from tests.ports import free_range

RUNTIME = Path(__file__).resolve().parents[3] / "runtime"
LIMIT_S = 90.0

SHOWS = "import json, os, sys\nprint(json.dumps([dict(os.environ), sys.argv[1:]]))\n"
# Each has a child in a session of its own, tells both ids, and hears no TERM.
HANGS = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(f"pids.{os.environ['PADDLE_TRAINER_ID']}.part", "w").write(f"{os.getpid()} {child.pid}")
os.rename(f"pids.{os.environ['PADDLE_TRAINER_ID']}.part", f"pids.{os.environ['PADDLE_TRAINER_ID']}")
time.sleep(600)
"""
FAILS = """
import os, sys, time
if os.environ["PADDLE_TRAINER_ID"] == "1":
    sys.exit("the cause of it all")
time.sleep(600)
"""
# A pserver that never ends by itself, and a trainer that ends when both pservers are there.
SERVES = """
import os, pathlib, time
if os.environ["TRAINING_ROLE"] == "PSERVER":
    pathlib.Path("server." + os.environ["PADDLE_TRAINER_ID"]).touch()
    time.sleep(600)
while len(list(pathlib.Path().glob("server.*"))) < 2:
    time.sleep(0.02)
"""


def environment(**names: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(RUNTIME), **names}


def launched(
    folder: Path, text: str, *flags: str, module: str = "launch", **names: str
) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(text)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", f"paddle.distributed.{module}", *flags, "script.py", "--gpus", "7"],
        cwd=folder,
        env=environment(**names),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def told(path: Path) -> tuple[dict[str, str], list[str]]:
    env, arguments = json.loads(path.read_text())
    return env, arguments


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A launch of two processes that hang, and the ids of these and of their children."""
    process = launched(tmp_path, HANGS, "--gpus=2")
    files = [tmp_path / "pids.0", tmp_path / "pids.1"]
    pids: list[int] = []
    try:
        wait_for("two processes", lambda: all(file.exists() for file in files), LIMIT_S)
        pids += [int(pid) for file in files for pid in file.read_text().split()]
        yield process, pids
    finally:
        for pid in (process.pid, *pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=LIMIT_S)


def is_gone(pid: int) -> bool:
    """Whether a process ended; one that nobody has waited for yet counts."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def test_every_process_learns_who_it_is_and_inherits_the_environment(tmp_path: Path) -> None:
    code, out, err = ended(launched(tmp_path, SHOWS, "--gpus", "2", PADDLE_NUM_TRAINERS="1", MINE="x"))
    assert (code, out) == (0, "")
    for rank in (0, 1):
        env, arguments = told(tmp_path / "mylog" / f"workerlog.{rank}")
        assert arguments == ["--gpus", "7"]
        endpoints = env["PADDLE_TRAINER_ENDPOINTS"].split(",")
        assert env["PADDLE_CURRENT_ENDPOINT"] == endpoints[rank]
        assert env["PADDLE_TRAINER_ENDPOINTS"] in err
        assert {name: env[name] for name in ("PADDLE_TRAINER_ID", "FLAGS_selected_gpus")} == {
            "PADDLE_TRAINER_ID": str(rank),
            "FLAGS_selected_gpus": str(rank),
        }
        assert (env["PADDLE_TRAINERS_NUM"], env["PADDLE_NUM_TRAINERS"], env["MINE"]) == ("2", "1", "x")


def test_nodes_are_named_by_flags_or_by_the_environment_alike(tmp_path: Path) -> None:
    by_flags = ("--cluster_node_ips=127.0.0.1,127.0.0.9", "--node_ip=127.0.0.9", "--selected_gpus=3,5")
    by_environment = {"PADDLE_TRAINERS": "127.0.0.1,127.0.0.9", "PADDLE_TRAINER_ID": "1"}
    port = f"--started_port={free_range(2)}"
    found = []
    for flags, names in ((by_flags, {}), (("--selected_gpus=3,5",), by_environment)):
        assert ended(launched(tmp_path, SHOWS, *flags, port, "--log_dir=logs", **names))[0] == 0
        env, _ = told(tmp_path / "logs" / "workerlog.1")
        found.append([env[name] for name in ("PADDLE_TRAINER_ID", "PADDLE_TRAINER_ENDPOINTS", "POD_IP")])
        assert (env["FLAGS_selected_gpus"], env["PADDLE_NUM_TRAINERS"]) == ("5", "2")
    first = int(port.partition("=")[2])
    endpoints = [f"{ip}:{first + at}" for ip in ("127.0.0.1", "127.0.0.9") for at in (0, 1)]
    assert found == [["3", ",".join(endpoints), "127.0.0.9"]] * 2


@pytest.mark.parametrize(
    ("flags", "names", "expected"),
    [
        (["--gpus=2"], {"PADDLE_NUM_TRAINERS": "2"}, "--cluster_node_ips"),
        (["--gpus=2", "--selected_gpus=1"], {}, "--gpus=2 and --selected_gpus=1"),
        (["--selected_gpus=1,1"], {}, "'1,1'"),
        (["--cluster_node_ips=127.0.0.1,127.0.0.9"], {}, "--node_ip"),
        ([], {"PADDLE_TRAINER_ID": "4"}, "0 to 0"),
        (["--log_dir=script.py/logs"], {}, "cannot create"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(
    tmp_path: Path, flags: list[str], names: dict[str, str], expected: str
) -> None:
    code, _, err = ended(launched(tmp_path, SHOWS, *flags, **names))
    assert code == 2
    assert expected in err
    assert "Traceback" not in err
    assert not (tmp_path / "mylog").exists()


def test_a_taken_port_is_refused_if_it_was_given_and_passed_over_if_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, _, err = ended(launched(tmp_path, SHOWS, f"--started_port={port}"))
    assert (code, f"port {port} of 127.0.0.1 is in use" in err) == (2, True)
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # somebody else may hold it, which is as good
            held.enter_context(socket.create_server(("127.0.0.1", 6170)))
        assert ended(launched(tmp_path, SHOWS, "--gpus=1"))[0] == 0
    assert not told(tmp_path / "mylog" / "workerlog.0")[0]["PADDLE_CURRENT_ENDPOINT"].endswith(":6170")


def test_the_first_failure_ends_all_and_shows_its_last_lines(tmp_path: Path) -> None:
    code, _, err = ended(launched(tmp_path, FAILS, "--gpus=3"))
    assert code == 1
    assert re.search(r"trainer 1 failed: exit code 1\n.*workerlog.1:\nlaunch:   the cause of it all", err)
    assert "trainer 0 failed" not in err


def test_ends_are_noticed_where_child_signals_were_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        process = launched(tmp_path, "import sys; sys.exit(3)", "--gpus=2")
    finally:
        signal.signal(signal.SIGCHLD, before)
    code, _, err = ended(process)
    assert code == 1
    assert "failed: exit code 3" in err


def test_an_empty_log_dir_leaves_the_output_on_the_screen(tmp_path: Path) -> None:
    code, out, _ = ended(launched(tmp_path, "import os; os.write(1, b'heard\\n')", "--gpus=2", "--log_dir="))
    assert (code, out) == (0, "heard\nheard\n")
    assert not (tmp_path / "mylog").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_everything_below(
    hanging: tuple[subprocess.Popen[str], list[int]], number: signal.Signals
) -> None:
    process, pids = hanging
    process.send_signal(number)
    wait_for("TERM", lambda: is_gone(pids[1]) and is_gone(pids[3]), LIMIT_S)
    process.send_signal(number)  # nobody wants to wait for the others' grace
    assert ended(process)[0] == 128 + number
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize("victim", ["front", "keeper"])
def test_nothing_is_left_when_one_of_the_two_is_killed(
    hanging: tuple[subprocess.Popen[str], list[int]], victim: str
) -> None:
    process, pids = hanging
    keeper = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    assert keeper != process.pid
    os.kill(process.pid if victim == "front" else keeper, signal.SIGKILL)
    wait_for("the end", lambda: all(is_gone(pid) for pid in (*pids, keeper, process.pid)), LIMIT_S)
    assert ended(process)[0] == (-signal.SIGKILL if victim == "front" else 1)


def test_pservers_that_do_not_end_are_stopped_when_the_trainers_are_done(tmp_path: Path) -> None:
    assert ended(launched(tmp_path, SERVES, module="launch_ps"))[0] == 0
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == [
        f"{role}log.{at}" for role in ("server", "worker") for at in (0, 1)
    ]


def test_pservers_and_trainers_learn_of_each_other_under_the_names_of_every_version(tmp_path: Path) -> None:
    flags = ("--server_num=1", "--worker_num=3")
    assert ended(launched(tmp_path, SHOWS, *flags, module="launch_ps", POD_IP="127.0.0.7"))[0] == 0
    server, _ = told(tmp_path / "logs" / "serverlog.0")
    worker, _ = told(tmp_path / "logs" / "workerlog.2")
    port = server["PADDLE_PORT"]
    for env in (server, worker):
        assert env["PADDLE_PSERVERS_IP_PORT_LIST"] == f"127.0.0.7:{port}"
        assert env["PADDLE_PSERVERS"] == env["PADDLE_PSERVER_IPS"] == env["POD_IP"] == "127.0.0.7"
        assert env["PADDLE_PSERVER_PORT"] == env["PADDLE_PORT"] == port
        assert env["PADDLE_TRAINERS_NUM"] == env["PADDLE_TRAINERS"] == "3"
        assert env["TRAINING_ROLE"] == env["PADDLE_TRAINING_ROLE"]
    assert (server["TRAINING_ROLE"], worker["TRAINING_ROLE"], worker["PADDLE_TRAINER_ID"]) == (
        "PSERVER",
        "TRAINER",
        "2",
    )
    assert server["PADDLE_CURRENT_ENDPOINT"] == server["CURRENT_ENDPOINT"] == f"127.0.0.7:{port}"


def test_ctrl_c_in_a_terminal_reaches_the_processes_once(tmp_path: Path) -> None:
    """The terminal tells its whole foreground group; a second order would cut the grace short."""
    text = """
import pathlib, signal, sys, time
def end(number, frame):
    time.sleep(0.5)
    pathlib.Path("saved").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path("there").touch()
time.sleep(600)
"""
    (tmp_path / "script.py").write_text(text)
    argv = [sys.executable, "-P", "-m", "paddle.distributed.launch", "--gpus=1", "script.py"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(argv[0], argv, environment())
    try:
        wait_for("the process", (tmp_path / "there").exists, LIMIT_S)
        os.write(terminal, b"\x03")
        wait_for("the end", lambda: is_gone(pid), LIMIT_S)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert (tmp_path / "saved").exists()
