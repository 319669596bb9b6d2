# SPDX-License-Identifier: Apache-2.0
"""Job directories that nodes keep: the last ones of a workspace, and all that somebody may still need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.control_jobs import ROOT
from tests.nursery import Forked

LIMIT_S = 110


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "conf.py"
    path.write_text(f"HOSTS = ['local']\nROOT_DIR = {str(tmp_path / 'nodes')!r}\nKEEP_JOBS = 2\n")
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    (made / "train.py").write_text(
        "import os, sys\nos.mkdir('deep')\nos.symlink('/etc', 'deep/link')\nprint(sys.argv)\n"
    )
    return made


def paddle(*words: str, code: int = 0) -> str:
    """Run the launcher to its end and return its output."""
    launcher = Forked("launcher", words, os.environ, None)
    output, _ = launcher.communicate(LIMIT_S)
    assert launcher.returncode == code, output
    return output


def run(workspace: Path, conf: Path, *options: str) -> str:
    return paddle("-p", str(workspace), f"--conf={conf}", "--mode=collective", *options)


def kept(conf: Path) -> list[str]:
    """Names of the job directories, the oldest first."""
    found = [path.name for path in (conf.parent / "nodes" / "node_0").glob("JOB*")]
    return sorted(found, key=lambda job: float(json.loads(record_of(conf, job).read_text())["since"]))


def record_of(conf: Path, job: str) -> Path:
    """What the node remembers of a job."""
    (path,) = (conf.parent / "nodes/node_0/.paddle/jobs").glob(f"{job}.*")
    return path


def change(conf: Path, job: str, **fields: object) -> None:
    """Make a record say something else."""
    path = record_of(conf, job)
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_the_last_jobs_of_a_workspace_stay_and_those_of_another_are_not_touched(
    workspace: Path, conf: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text("pass\n")
    run(other, conf)
    (stranger,) = kept(conf)
    seen = []
    for _ in range(4):
        run(workspace, conf)
        seen.append(kept(conf)[-1])
    assert kept(conf) == [stranger, *seen[-2:]]


@pytest.mark.parametrize(
    "record",
    [
        {"keeps_state": True},
        {"ended": {"at": 0, "how": "x", "settled": False}},
        {"ended": None},
        {"job_dir": "/elsewhere"},
        {"submitter": {}},
        {"job_id": "../../ws"},
    ],
)
def test_what_somebody_may_need_stays(workspace: Path, conf: Path, record: dict[str, object]) -> None:
    run(workspace, conf)
    (first,) = kept(conf)
    change(conf, first, **record)
    conf.write_text(conf.read_text().replace("KEEP_JOBS = 2", "KEEP_JOBS = 1"))
    run(workspace, conf)
    assert kept(conf)[0] == first
    assert len(kept(conf)) == 2
    assert (workspace / "train.py").exists()


def test_a_job_says_of_itself_that_its_directory_holds_checkpoints(workspace: Path, conf: Path) -> None:
    conf.write_text(conf.read_text().replace("KEEP_JOBS = 2", "KEEP_JOBS = 1"))
    run(workspace, conf, "--checkpoint_dir=saved")
    run(workspace, conf)
    run(workspace, conf)
    first, *others = kept(conf)
    assert json.loads(record_of(conf, first).read_text())["keeps_state"] is True
    assert len(others) == 1


SAVES = """
import os, pathlib
saved = pathlib.Path(os.environ["PADDLE_CHECKPOINT_DIR"], os.environ["RANK"] + ".pt")
lives = int(saved.read_text()) if saved.exists() else 0
saved.write_text(str(lives + 1))
saved.with_suffix(".tmp").touch()
if not lives:
    raise SystemExit(3)
"""


def test_what_scripts_save_outlives_them_and_their_job_and_comes_back(workspace: Path, conf: Path) -> None:
    conf.write_text(conf.read_text().replace("['local']", "['local', 'local']"))
    (workspace / "train.py").write_text(SAVES)
    named = ("--keep_as=run7", "--collect=*.pt", "--max_restarts=1")
    for lives in ("2", "3"):
        run(workspace, conf, *named)
        collected = workspace / "output" / "checkpoints"
        assert {str(path.relative_to(collected)) for path in collected.rglob("*.*")} == {
            "node_0/0.pt",
            "node_1/1.pt",
        }
        assert [path.read_text() for path in sorted(collected.rglob("*.pt"))] == [lives, lives]
    assert "run7: 2 files on local-0, 2 files on local-1" in paddle("checkpoints", "-p", str(workspace))


def test_what_nobody_named_goes_with_its_job(workspace: Path, conf: Path) -> None:
    (workspace / "train.py").write_text(SAVES)
    saved = conf.parent / "nodes/node_0/checkpoints"
    said = run(workspace, conf, "--max_restarts=1")
    (first,) = kept(conf)
    assert f"to continue: run the same command again, with --keep_as={first}. The nodes keep what" in said
    said = run(workspace, conf, f"--keep_as={first}")  # continues it
    assert "to continue" not in said
    run(workspace, conf, f"--keep_as={first}")
    assert kept(conf)[0] != first
    assert [path.name for path in saved.iterdir()] == [first]
    (workspace / "train.py").write_text("pass\n")
    assert "to continue" not in run(workspace, conf)
    assert [path.name for path in saved.iterdir()] == [first]  # a job that saves nothing leaves nothing


def test_clean_takes_what_nobody_needs_and_says_what_stays(workspace: Path, conf: Path) -> None:
    conf.write_text(conf.read_text().replace("KEEP_JOBS = 2", "KEEP_JOBS = 9"))
    run(workspace, conf)
    run(workspace, conf, "--checkpoint_dir=saved")
    run(workspace, conf)
    run(workspace, conf)
    gone, saved, uncollected, last = kept(conf)
    change(conf, uncollected, ended={"at": 0, "how": "x", "settled": False})

    said = paddle("clean", f"--conf={conf}", "--dry_run")
    assert "2 jobs would be removed" in said
    assert f"  {gone}  " in said
    assert len(kept(conf)) == 4

    assert "0 jobs removed" in paddle("clean", f"--conf={conf}", "--older_than=1d")
    said = paddle("clean", f"--conf={conf}")
    assert "2 jobs removed" in said
    assert f"{saved} is not removed: it may contain checkpoints" in said
    assert f"{uncollected} is not removed: its files were not collected completely" in said
    assert last not in said
    assert kept(conf) == [saved, uncollected]
    assert (workspace / "train.py").exists()
    assert "0 jobs removed, 0 bytes" in paddle("clean", f"--conf={conf}")


@pytest.mark.parametrize("words", [["JOB1"], ["--older_than=7"], ["--older_than=-1d"], ["--older_than=1e9d"]])
def test_clean_refuses_what_it_does_not_know(conf: Path, words: list[str]) -> None:
    paddle("clean", f"--conf={conf}", *words, code=2)
    assert not (conf.parent / "nodes").exists()


def test_clean_leaves_a_job_that_runs(workspace: Path, conf: Path) -> None:
    run(workspace, conf)
    (workspace / "train.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(300)\n")
    argv = [
        sys.executable,
        str(ROOT / "paddle.py"),
        "-p",
        str(workspace),
        f"--conf={conf}",
        "--mode=collective",
    ]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        try:
            assert any("begun" in line for line in job.stdout)
            _, running = kept(conf)
            said = paddle("clean", f"--conf={conf}")
            assert f"{running} is not removed: it runs" in said
            assert kept(conf) == [running]
        finally:
            job.terminate()
            job.stdout.read()
