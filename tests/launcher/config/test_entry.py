# SPDX-License-Identifier: Apache-2.0
"""--entry: Python files, modules and programs, and what is wrong with them before any connection."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paddle_cluster.config.arguments import parse
from paddle_cluster.config.entry import Entry, check, files, read
from paddle_cluster.errors import LauncherError, UsageError


def made(path: Path, content: bytes = b"pass\n", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def refused(text: str, package: Path) -> str:
    with pytest.raises(LauncherError) as caught:
        check(read(text), package)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("train.py", Entry(path="train.py")),
        ("./a//b.py", Entry(path="a/b.py")),
        ("run.sh", Entry(path="run.sh")),
        ("-mpkg.train", Entry(module="pkg.train")),
        ("-m pkg.train", Entry(module="pkg.train")),
    ],
)
def test_an_entry_reads_as_after_the_word_python(text: str, entry: Entry) -> None:
    assert read(text) == entry
    assert read(read(text).text) == entry


@pytest.mark.parametrize(
    "text", ["-m", "-m pkg/train.py", "-m.x", "-m pkg train", "-mpkg;id", "-x", "/bin/sh", "../a"]
)
def test_what_is_neither_path_nor_module_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--entry: expected"):
        parse(["-p", "ws", f"--entry={text}"])


def test_a_program_has_to_be_executable_and_one_that_linux_runs(tmp_path: Path) -> None:
    script = made(tmp_path / "run.sh", b"#!/bin/sh\necho hi\n")
    assert f"run.sh is not executable; run `chmod +x {script}` (a Python file must end in .py)" in refused(
        "run.sh", tmp_path
    )
    script.chmod(0o755)
    check(read("./run.sh"), tmp_path)
    made(tmp_path / "text", b"echo hi\n", 0o755)
    assert "text: it is not a Linux executable and does not begin with #!" in refused("text", tmp_path)
    dos = made(tmp_path / "dos.sh", b"#!/bin/sh\r\necho hi\r\n", 0o755)
    assert f"its lines end in CR LF; convert it with sed -i 's/\\r$//' {dos}" in refused("dos.sh", tmp_path)
    made(tmp_path / "python", Path(sys.executable).resolve().read_bytes()[:4096], 0o755)
    check(read("python"), tmp_path)


def test_a_python_file_needs_no_execute_bit(tmp_path: Path) -> None:
    made(tmp_path / "train.py")
    check(read("train.py"), tmp_path)


@pytest.mark.parametrize("text", ["ws/train.py", "python train.py", "train"])
def test_an_entry_with_more_than_its_path_is_told_its_path(text: str, tmp_path: Path) -> None:
    assert "add it, or name" in refused(text, tmp_path)
    made(tmp_path / "train.py")
    assert "did you mean --entry=train.py?" in refused(text, tmp_path)


def test_arguments_in_an_entry_are_sent_behind_the_options(tmp_path: Path) -> None:
    made(tmp_path / "train.py")
    made(tmp_path / "my train.py")
    assert "did you mean --entry='my train.py'?" in refused("my_train.py", tmp_path)
    assert "did you mean --entry=train.py?" in refused("-mtrain.py", tmp_path)
    assert "did you mean --entry=train.py ... -- --lr 1?" in refused("python train.py --lr 1", tmp_path)


def test_a_notebook_is_to_be_converted(tmp_path: Path) -> None:
    made(tmp_path / "a.ipynb", b"{}")
    assert "--entry=a.py" in refused("a.ipynb", tmp_path)
    assert "--entry=a.py" in refused("train.py", tmp_path)


def test_a_module_of_the_workspace_must_be_there(tmp_path: Path) -> None:
    made(tmp_path / "pkg/train.py")
    made(tmp_path / "pkg/tool/__main__.py")
    made(tmp_path / "alone.py")
    for text in ("-mpkg.train", "-mpkg.tool", "-malone"):
        check(read(text), tmp_path)
    assert "has neither pkg/trian.py nor pkg/trian/__main__.py" in refused("-mpkg.trian", tmp_path)
    assert files(read("-mpkg.train"), tmp_path) == ("pkg/train.py", "pkg/train/__main__.py")


def test_a_module_that_is_not_in_the_workspace_is_left_to_the_nodes(tmp_path: Path) -> None:
    check(read("-mxgboost_job.main"), tmp_path)
    assert files(read("-mxgboost_job.main"), tmp_path) == ()


def test_of_a_script_and_a_package_with_one_name_the_one_that_python_runs_is_checked(tmp_path: Path) -> None:
    made(tmp_path / "job.py")
    made(tmp_path / "job/__main__.py", b"")
    check(read("-mjob"), tmp_path)  # without __init__.py, the script is preferred
    made(tmp_path / "job/__init__.py", b"")
    assert f"{tmp_path}/job/__main__.py is empty (0 bytes)" in refused("-mjob", tmp_path)
    (tmp_path / "job/__main__.py").unlink()
    assert "has no job/__main__.py" in refused("-mjob", tmp_path)
    made(tmp_path / "job/__main__.py")
    made(tmp_path / "job.py", b"")
    check(read("-mjob"), tmp_path)


def test_a_script_in_a_folder_of_the_workspace_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    made(tmp_path / "src/train.py")
    assert "did you mean --entry=src/train.py?" in refused("train.py", tmp_path)
    (tmp_path / "old").mkdir()
    made(tmp_path / "old/train.py")
    assert "add it, or name" in refused("train.py", tmp_path)
