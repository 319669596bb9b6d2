# SPDX-License-Identifier: Apache-2.0
"""Log files in glog's form."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle import glog
from paddle.env import JobEnvironment

LINE = re.compile(r"[IWEF]\d{4} \d{2}:\d{2}:\d{2}\.\d{6} [ \d]{4}\d+ test_glog\.py:\d+\] .*")


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    yield
    logger = logging.getLogger("paddle")
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def to_files(folder: Path) -> JobEnvironment:
    return JobEnvironment.read({"GLOG_logtostderr": "0", "GLOG_log_dir": str(folder)})


def test_a_log_file_begins_with_glogs_header_and_is_found_through_its_symlink(tmp_path: Path) -> None:
    log = glog.open_log(glog.TRAINER, to_files(tmp_path / "log"))
    log.info("trainer mode: %s", "Normal")
    link = tmp_path / "log" / "paddle_trainer.INFO"
    assert link.is_symlink()
    assert re.fullmatch(
        r"paddle_trainer\.[^/]+\.[^/]+\.log\.INFO\.\d{8}-\d{6}\." + str(os.getpid()), str(link.readlink())
    )
    created, machine, form, line = link.read_text().splitlines()
    assert re.fullmatch(r"Log file created at: \d{4}/\d\d/\d\d \d\d:\d\d:\d\d", created)
    assert re.fullmatch(r"Running on machine: \S+", machine)
    assert form == "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg"
    assert LINE.fullmatch(line)
    assert line.endswith("] trainer mode: Normal")


def test_the_file_has_all_levels_and_stderr_the_warnings(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = glog.open_log(glog.TRAINER, to_files(tmp_path))
    log.debug("hidden")
    log.info("one")
    log.warning("two")
    log.error("three")
    log.critical("four")
    lines = (tmp_path / "paddle_trainer.INFO").read_text().splitlines()[3:]
    assert [line[0] + line.rpartition("] ")[2] for line in lines] == ["Ione", "Wtwo", "Ethree", "Ffour"]
    assert capfd.readouterr().err.splitlines() == lines[1:]


def test_with_echo_all_lines_go_to_stdout_as_well(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = glog.open_log(glog.PSERVER, to_files(tmp_path), echo=True)
    log.info("one")
    log.error("two")
    out, err = capfd.readouterr()
    assert out.splitlines() == (tmp_path / "paddle_pserver2.INFO").read_text().splitlines()[3:]
    assert err == ""


def test_without_glog_in_the_environment_lines_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    glog.open_log(glog.TRAINER, JobEnvironment()).info("hello")
    assert LINE.fullmatch(capfd.readouterr().err.strip())


def test_children_of_the_logger_and_other_threads_write_to_the_same_file(tmp_path: Path) -> None:
    glog.open_log(glog.TRAINER, to_files(tmp_path))
    thread = threading.Thread(target=logging.getLogger("paddle.pserver.x").info, args=("from elsewhere",))
    thread.start()
    thread.join()
    logging.getLogger("paddle").info("from here")
    ids = [line.split()[2] for line in (tmp_path / "paddle_trainer.INFO").read_text().splitlines()[3:]]
    assert len(set(ids)) == 2


def test_opening_again_replaces_the_file_behind_the_symlink(tmp_path: Path) -> None:
    glog.open_log(glog.TRAINER, to_files(tmp_path / "a")).info("first")
    glog.open_log(glog.TRAINER, to_files(tmp_path / "b")).info("second")
    assert "second" not in (tmp_path / "a" / "paddle_trainer.INFO").read_text()
    assert "second" in (tmp_path / "b" / "paddle_trainer.INFO").read_text()


def test_a_full_file_is_followed_by_another_and_the_last_three_are_kept(tmp_path: Path) -> None:
    log = glog.open_log(
        glog.TRAINER,
        JobEnvironment.read(
            {"GLOG_logtostderr": "0", "GLOG_log_dir": str(tmp_path), "GLOG_max_log_size": "1"}
        ),
    )
    seen: set[Path] = set()
    deadline = time.monotonic() + 30
    number = 0
    while len(seen) < 5:
        assert time.monotonic() < deadline
        for _ in range(300):
            number += 1
            log.info("%d %s", number, "x" * 1000)
        seen |= set(tmp_path.glob("*.log.INFO.*"))
        time.sleep(0.1)  # names differ by the second
    files = sorted(tmp_path.glob("*.log.INFO.*"))
    assert files == sorted(seen)[-3:]
    assert (tmp_path / "paddle_trainer.INFO").resolve() == files[-1]
    texts = [path.read_text() for path in files]
    assert all(text.startswith("Log file created at: ") for text in texts)
    numbers = [int(line.split("] ")[1].split()[0]) for text in texts for line in text.splitlines()[3:]]
    assert numbers == list(range(numbers[0], number + 1))


def test_a_folder_that_cannot_be_made_is_told_on_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    log = glog.open_log(glog.TRAINER, to_files(tmp_path / "file" / "log"))
    log.info("not heard")
    log.warning("still heard")
    first, second = capfd.readouterr().err.splitlines()
    assert "cannot create a log file for paddle_trainer" in first
    assert second.endswith("still heard")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_loses_lines_and_counts_them(tmp_path: Path) -> None:
    log = glog.open_log(glog.TRAINER, to_files(tmp_path))
    log.info("before")
    file = (tmp_path / "paddle_trainer.INFO").resolve()
    descriptor = next(int(name) for name in os.listdir("/proc/self/fd") if _target(name) == str(file))
    kept = os.dup(descriptor)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, descriptor)
    log.info("lost")
    log.info("lost too")
    os.dup2(kept, descriptor)
    log.info("after")
    os.close(kept)
    os.close(full)
    lines = file.read_text().splitlines()[3:]
    assert [line.rpartition("] ")[2] for line in lines] == [
        "before",
        "after",
        "2 log lines before this one could not be written",
    ]


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:  # the descriptor that listed the folder
        return ""


def test_a_wrong_log_argument_is_logged_and_raises_nothing(tmp_path: Path) -> None:
    glog.open_log(glog.TRAINER, to_files(tmp_path)).info("%d items", "many")
    assert "cannot format a message: '%d items'" in (tmp_path / "paddle_trainer.INFO").read_text()


@pytest.mark.parametrize("is_configured", [False, True])
def test_warnings_of_a_process_have_the_format_of_glog_unless_its_script_configured_logging(
    is_configured: bool,
) -> None:
    script = f"""
import logging
from paddle import glog
if {is_configured}: logging.basicConfig(format="mine %(message)s")
glog.warn_on_stderr()
glog.warn_on_stderr()
logging.getLogger("paddle.x").info("routine")
logging.getLogger("paddle.x").warning("a peer is gone")
"""
    env = {**os.environ, "PYTHONPATH": str(Path(glog.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(
        r"mine a peer is gone" if is_configured else r"W\d{4} [\d:.]+ +\d+ \S+\] a peer is gone", line
    )


def test_a_warning_is_written_to_standard_error_and_never_to_a_file_that_reuses_its_descriptor(
    tmp_path: Path,
) -> None:
    script = """
import contextlib, logging, sys
from paddle import glog
with open("quiet", "w") as quiet, contextlib.redirect_stderr(quiet):
    glog.warn_on_stderr()
    logging.getLogger("paddle.x").warning("hidden")
    taken = quiet.fileno()
with open("model", "wb") as model:
    assert model.fileno() == taken
    logging.getLogger("paddle.x").warning("a peer is gone")
"""
    env = {**os.environ, "PYTHONPATH": str(Path(glog.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr.endswith("] a peer is gone\n")
    assert (tmp_path / "quiet").read_text().endswith("] hidden\n")
    assert (tmp_path / "model").read_bytes() == b""
