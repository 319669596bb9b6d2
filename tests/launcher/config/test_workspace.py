# SPDX-License-Identifier: Apache-2.0
"""What the command line says about the workspace is checked before any connection."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.config.arguments import parse
from paddle_cluster.config.resolve import resolve
from paddle_cluster.config.workspace import check_directory, check_workspace
from paddle_cluster.errors import ExitCode, LauncherError, WorkspaceError

Check = Callable[..., str]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Check a command line; the message it is refused with, or nothing."""
    conf = tmp_path / "conf.py"
    conf.write_text("HOSTS = ['a']")

    def refusal(*argv: str) -> str:
        try:
            check_workspace(resolve(parse([*argv, f"--conf={conf}"]), {}))
        except LauncherError as error:
            return f"{int(error.exit_code)} {error}"
        return ""

    return refusal


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that can run."""
    package = tmp_path / "ws"
    package.mkdir()
    (package / "train.py").write_text("pass\n")
    return package


def test_a_directory_with_the_entry_script_is_fine(check: Check, package: Path) -> None:
    assert check("-p", str(package)) == ""


def test_the_entry_may_be_another_script_in_a_subdirectory(check: Check, package: Path) -> None:
    (package / "src").mkdir()
    (package / "src" / "go.py").write_text("pass\n")
    assert check("-p", str(package), "--entry=./src/go.py") == ""


@pytest.mark.parametrize("entry", ["train.py", "-mtrain", "-mpkg"])
def test_an_empty_script_is_refused_as_it_would_end_with_0(check: Check, package: Path, entry: str) -> None:
    (package / "pkg").mkdir()
    for name in ("train.py", "pkg/__main__.py"):
        (package / name).write_bytes(b"")
    assert "is empty (0 bytes)" in check("-p", str(package), f"--entry={entry}")
    for name in ("train.py", "pkg/__main__.py"):
        (package / name).write_text("# nothing yet\n")
    assert check("-p", str(package), f"--entry={entry}") == ""


def test_config_must_be_a_file_of_the_workspace_or_conf_is_meant(check: Check, package: Path) -> None:
    (package / "trainer_config.py").touch()
    (package.parent / "mine.py").touch()
    assert check("-p", str(package), "--config=./trainer_config.py") == ""
    for elsewhere in ("mine.py", "../mine.py", str(package.parent / "mine.py")):
        assert f"give --conf={elsewhere}" in check("-p", str(package), f"--config={elsewhere}")
    assert "omit --config" not in check("-p", str(package), "--config=mine.py", "--entry=none.py")
    assert "train.py builds the network, omit --config" in check("-p", str(package), "--config=mine.py")
    assert "give --conf=" in check("-j", "JOB1", f"--config={package.parent / 'mine.py'}")
    assert check("-j", "JOB1", "--config=trainer_config.py") == ""


def test_a_missing_path_is_refused(check: Check, package: Path) -> None:
    assert check("-p", f"{package}/none") == (
        f"{int(ExitCode.USAGE)} --job_dispatch_package: {package}/none does not exist; give the directory to dispatch"
    )


def test_a_home_directory_in_quotes_is_written_out(check: Check) -> None:
    assert f"only outside quotes: {Path.home()}/none" in check("-p", "~/none")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("data.zip", "unpack it"),
        ("other.py", "--job_dispatch_package={} --entry=other.py"),
        ("dataset", "did you mean {}/datasets?"),
        ("loop", "the link leads to loop"),
        ("loop/ws", "give the directory to dispatch"),
        ("git@host:ws", "clone it"),
        ("https://host/ws", "clone it"),
    ],
)
def test_what_is_no_directory_is_refused_with_the_next_step(package: Path, given: str, words: str) -> None:
    (package / "datasets").mkdir()
    (package / "loop").symlink_to("loop")
    (package / "data.zip").touch()
    (package / "other.py").touch()
    with pytest.raises(WorkspaceError, match=re.escape(words.format(package))):
        check_directory(Path(given) if ":" in given else package / given)


def test_a_workspace_named_from_inside_is_refused_with_the_dot(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(package)
    with pytest.raises(
        WorkspaceError, match=r"ws does not exist; the current directory has train\.py: -p \."
    ):
        check_directory(Path("ws"))


def test_the_rest_of_a_path_with_a_space_is_recognized(package: Path) -> None:
    (package / "my ws").mkdir()
    with pytest.raises(WorkspaceError, match=f"'{package}/my ws'"):
        check_directory(package / "my", ["ws"])


def test_a_file_is_refused_with_the_directory_to_give(check: Check, package: Path) -> None:
    assert f"--job_dispatch_package={package}" in check("-p", f"{package}/train.py")


def test_an_empty_directory_is_refused(check: Check, package: Path) -> None:
    (package / "train.py").unlink()
    assert "is empty; put train.py" in check("-p", str(package))


def test_a_package_without_the_entry_is_refused_with_the_option(check: Check, package: Path) -> None:
    (package / "train.py").rename(package / "main.py")
    refusal = check("-p", str(package))
    assert "train.py" in refusal
    assert "--entry=main.py" in refusal
    assert check("-p", str(package), "--entry=main.py") == ""


def test_an_entry_that_is_a_directory_is_refused(check: Check, package: Path) -> None:
    (package / "d.py").mkdir()
    assert "d.py is a directory; give a file in it" in check("-p", str(package), "--entry=d.py")


@pytest.mark.parametrize("entry", ["/etc/passwd", "../train.py", "a/../../x", ".", "-c", "a\nb"])
def test_an_entry_outside_the_workspace_is_refused(check: Check, package: Path, entry: str) -> None:
    assert "--entry: expected a path inside the workspace, relative to it, such as " in check(
        "-p", str(package), f"--entry={entry}"
    )


def test_what_would_hide_the_runtime_is_refused(check: Check, package: Path) -> None:
    (package / "paddle").symlink_to("/nonexistent")
    assert "would hide the paddle package" in check("-p", str(package))
    (package / "paddle").unlink()
    (package / "paddle.py").touch()
    assert f"{package}/paddle.py would hide" in check("-p", str(package))
    (package / "paddle.py").rename(package / "paddle_lib.py")
    assert check("-p", str(package)) == ""


def test_shard_directories_must_exist_inside(check: Check, package: Path) -> None:
    (package / "data").mkdir()
    assert check("-p", str(package), "--shard_dirs=data/,./data") == ""
    assert "has no directory dta" in check("-p", str(package), "--shard_dirs=data,dta")
    assert "inside the workspace" in check("-p", str(package), "--shard_dirs=../data")


@pytest.mark.parametrize("directory", ["/data/ws", "~/ws", "JOB20260101120000-abcdef", "a b"])
def test_a_directory_on_the_nodes_is_not_looked_for_here(check: Check, directory: str) -> None:
    assert check(f"--job_workspace={directory}") == ""


@pytest.mark.parametrize("directory", ["../ws", "/a/../b", "a\nb", "-rf"])
def test_an_odd_directory_on_the_nodes_is_refused(check: Check, directory: str) -> None:
    assert "--job_workspace: expected a directory on the nodes" in check(f"--job_workspace={directory}")
