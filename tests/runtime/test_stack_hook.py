# SPDX-License-Identifier: Apache-2.0
"""The hook that every Python of a job loads: it answers the signal and hides nobody else's sitecustomize."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddle_node.agent.processes.stacks import SIGNAL

HOOKS = Path(__file__).resolve().parents[2] / "runtime" / "paddle" / "hooks"
RAISE = f"import os\nos.kill(os.getpid(), {SIGNAL})\nprint('lives on')"


def python(code: str, *path: Path, number: str | None = str(SIGNAL)) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, (HOOKS, *path)))}
    if number is not None:
        env["PADDLE_STACKS_SIGNAL"] = number
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=30)


def test_the_signal_brings_the_stacks_and_the_process_lives_on() -> None:
    done = python(RAISE)
    assert done.stdout == "lives on\n"
    assert "most recent call first" in done.stderr
    assert 'File "<string>", line 2' in done.stderr


@pytest.mark.parametrize("number", [None, "", "no number", "9", "999999999999"])
def test_without_a_signal_that_can_be_caught_the_process_starts_as_ever(number: str | None) -> None:
    done = python("print('lives')", number=number)
    assert (done.stdout, done.stderr) == ("lives\n", "")


def test_a_sitecustomize_of_the_user_is_loaded_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("MARK = 'the user was here'\nprint(__name__)\n")
    done = python("import sitecustomize; print(sitecustomize.MARK)", tmp_path)
    assert done.stdout == "sitecustomize\nthe user was here\n"


def test_a_broken_sitecustomize_of_the_user_fails_as_it_would_alone(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('the user errs')\n")
    done = python("print('lives')", tmp_path)
    assert done.returncode == 0
    assert done.stdout == "lives\n"
    assert "the user errs" in done.stderr


@pytest.mark.parametrize(
    ("argument", "code", "said"),
    [
        ("256", 1, "exit code 256 would be 0, so 1 is used"),
        ("", 0, ""),
        ("0", 0, ""),
        ("300", 44, ""),
        ("'x'", 1, "x"),
    ],
)
def test_an_exit_code_that_the_system_would_report_as_0_is_1(argument: str, code: int, said: str) -> None:
    done = python(f"import sys; sys.exit({argument})")
    assert done.returncode == code
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)


def test_the_function_that_exits_can_be_pickled_and_raises_what_the_original_raises() -> None:
    done = python(
        "import pickle, sys\n"
        "pickle.dumps(sys.exit)\n"
        "try:\n    sys.exit()\n"
        "except SystemExit as error:\n    print(error.args)\n"
    )
    assert done.stdout == "()\n", done.stderr


_THREAD = """import sitecustomize, threading; sitecustomize.THREADS_S = {2}
def load():
    threading.Event().wait({0})
threading.Thread(target=load, name="loader", daemon={1}).start()
"""


@pytest.mark.parametrize("ending", ["", "raise ValueError"])
def test_a_thread_that_keeps_an_ended_script_running_is_named(ending: str) -> None:
    done = python(_THREAD.format(2, False, 0.1) + ending)
    assert done.stderr.count("the main thread has ended") == 1
    assert "loader at <string>:3. " in done.stderr


@pytest.mark.parametrize(("seconds", "is_daemon"), [(60, True), (0, False)])
def test_threads_that_end_with_the_script_are_not_mentioned(seconds: float, is_daemon: bool) -> None:
    done = python(_THREAD.format(seconds, is_daemon, 1.0))
    assert (done.returncode, done.stderr) == (0, "")
