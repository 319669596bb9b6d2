# SPDX-License-Identifier: Apache-2.0
"""`paddle.py init`: a conf.py and a workspace that run as they are, and nothing that was there is lost."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from paddle_cluster.cli import main
from paddle_cluster.cli.commands.init import SAMPLES, TEMPLATE_FILES
from paddle_cluster.system.installation import CONF_FILE, TEMPLATE_DIR

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_that_init_tells_is_a_job_that_can_begin(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["init", "a demo"]) == 0
    command = shlex.split(capsys.readouterr().out.splitlines()[-1].removeprefix("next: "))
    assert command == ["python", "paddle.py", "run", "-p", "a demo/ws", "--conf=a demo/conf.py"]
    assert main.main([*command[2:], "--dry_run"]) == 0
    assert "3 nodes from a demo/conf.py" in capsys.readouterr().out
    assert (here / "a demo/conf.py").read_bytes() == CONF_FILE.read_bytes()
    pieces = sorted(path.name for path in (here / "a demo/ws").glob("train.txt-*"))
    assert pieces == ["train.txt-00000", "train.txt-00001", "train.txt-00002"]
    assert sorted(path.name for path in (here / "a demo").iterdir()) == ["conf.py", "ws"]


def test_conf_is_not_said_where_it_counts_anyway(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_CLUSTER_CONF", str(here / "conf.py"))
    assert main.main(["init", "."]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "next: python paddle.py run -p ws"


def test_the_command_of_a_script_that_was_there_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("prepare.py", "train.py"):
        (here / name).write_text("print()")
    assert main.main(["init", "--jax", "."]) == 0
    command = shlex.split(capsys.readouterr().out.splitlines()[-1].removeprefix("or your own train.py: "))
    assert command[2:] == ["run", "-p", ".", "--conf=conf.py", "--entry=train.py", "--mode=collective"]
    assert main.main([*command[2:], "--dry_run"]) == 0


@pytest.mark.parametrize("option", SAMPLES)
def test_each_sample_is_a_job_that_can_begin(
    here: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert main.main(["init", option, "demo"]) == 0
    told = capsys.readouterr().out.splitlines()[-1].removeprefix("next: ")
    texts = [(here / "demo/ws" / name).read_text() for name in SAMPLES[option].files]
    assert any(told in text for text in texts) == (option != "--v2")  # whose README.md has both commands
    assert not any("-p examples" in text for text in texts)
    command = shlex.split(told)
    assert command[2:6] == ["run", "-p", "demo/ws", "--conf=demo/conf.py"]
    assert main.main([*command[2:], "--dry_run"]) == 0
    assert "trainer-2" in capsys.readouterr().out.replace("trainer 2", "trainer-2")
    assert SAMPLES[option].files.keys() <= {path.name for path in (here / "demo/ws").iterdir()}


@pytest.mark.parametrize("name", ["conf.py", "ws"])
def test_nothing_is_overwritten(here: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (here / "demo").mkdir()
    (here / "demo" / name).symlink_to("nowhere")
    assert main.main(["init", "demo"]) == 2
    assert f"demo/{name} would be overwritten" in capsys.readouterr().err
    assert [path.name for path in (here / "demo").iterdir()] == [name]


def test_a_directory_that_cannot_be_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "file").touch()
    assert main.main(["init", "file/demo"]) == 2
    assert "file/demo: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["a", "b"], ["--force"], [""], ["--jax"], ["--jax", "--v2", "a"]])
def test_init_takes_one_directory(here: Path, capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert main.main(["init", *argv]) == 2
    assert "init takes one directory" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_every_file_of_the_template_is_written() -> None:
    listed = subprocess.run(
        ["git", "ls-files", TEMPLATE_DIR.name], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert {Path(line).name for line in listed.splitlines()} == set(TEMPLATE_FILES)
