# SPDX-License-Identifier: Apache-2.0
"""Advice for failures that files of this machine explain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paddle_cluster.config.entry import read
from paddle_cluster.job.failure_report import early_exits_advice, local_advice
from paddle_cluster.nodes.failure import Failure, FailureKind

NO_MODULE = "ModuleNotFoundError: No module named "
RELATIVE = "ImportError: attempted relative import"
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: "


@pytest.mark.parametrize(
    ("entry", "error", "words"),
    [
        ("src/train.py", f"{MISSING}'vocab.txt'", "vocab.txt is in src/ of the workspace, .* open src/vocab.txt, or "),
        ("src/train.py", f"{MISSING}'./vocab.txt'", "open src/vocab.txt, or "),
        ("src/train.py", f"{MISSING}'other.txt'", ""),
        ("train.py", f"{MISSING}'vocab.txt'", ""),
        ("train.py", "ModuleNotFoundError: No module named 'mine'", "mine is in .*/lib, .* --env=PYTHONPATH"),
        ("train.py", "ModuleNotFoundError: No module named 'mine.sub'", ""),
        ("src/train.py", f"{NO_MODULE}'tools'", "searches only src/, .* --env=PYTHONPATH=., .* --entry=-msrc.train$"),
        ("-msrc.train", f"{NO_MODULE}'lib2'", "lib2 is in src/, .* import src.lib2, or give --entry=src/train.py$"),
        ("-msrc.train", f"{NO_MODULE}'tools'", ""),
        ("train.py", f"{NO_MODULE}'beside'", "beside is not in the workspace: give -p .* --entry=-mws.train$"),
        ("train.py", f"{NO_MODULE}'empty'", ""),  # a directory without Python files
        ("src/train.py", f"{RELATIVE} with no known parent package", "as a module: --entry=-msrc.train$"),
        ("train.py", f"{RELATIVE} with no known parent package", "import without the dot$"),
        ("run.sh", "could not be started: [Errno 2] No such file", "no /bin/zsh9, which the first line of run.sh"),
        ("train.py", "ModuleNotFoundError: No module named 'paddle_cluster'", ""),
        ("train.py", "ModuleNotFoundError: No module named 'pytest'", ""),  # installed only on this machine
    ],
)  # fmt: skip
def test_files_of_this_machine_explain_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, error: str, words: str
) -> None:
    for name in (
        "ws/src/vocab.txt",
        "ws/src/lib2.py",
        "ws/tools/a.py",
        "ws/run.sh",
        "beside/b.py",
        "empty/x",
        "lib/mine.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#!/bin/zsh9\n")
    monkeypatch.syspath_prepend(tmp_path / "lib")
    text = local_advice(error, read(entry), tmp_path / "ws")
    assert bool(text) == bool(words)
    assert re.search(words, text)


CLOSED = (
    "[rank0]: Traceback (most recent call last):\n",
    '[rank0]:   File "/jobs/JOB1/train.py", line 4, in <module>\n',
    '[rank0]:   File "/x/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5, in barrier\n',
    "[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:1\n",
)


@pytest.mark.parametrize(
    ("tail", "left_at", "words"),
    [
        (
            CLOSED,
            9.0,
            r"^trainer 1 had ended with code 0: all ranks must call the same collectives \(train.py:4\)",
        ),
        (CLOSED, 20.0, ""),
        ((*CLOSED[:2], CLOSED[3]), 9.0, ""),  # the connection may be one to a database
        ((*CLOSED[:3], "[rank0]: RuntimeError: shapes differ\n"), 9.0, ""),
    ],
)
def test_a_collective_call_without_ranks_that_have_ended_is_explained(
    tail: tuple[str, ...], left_at: float, words: str
) -> None:
    failure = Failure(FailureKind.EXIT, "node-a", "trainer-0", "exit code 1", at=10.0, code=1, tail=tail)
    found = early_exits_advice(failure, [(1, left_at)])
    assert bool(found) == bool(words)
    assert re.search(words, found)


def test_a_port_in_use_is_explained_by_another_launcher_in_the_script(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\ntorchrun --nnodes=2 train.py\n")
    text = local_advice("DistNetworkError: EADDRINUSE, address already in use", read("job.sh"), tmp_path)
    assert re.search(r"job.sh:2 starts torchrun, .* give --entry=train.py$", text)


@pytest.mark.parametrize(
    ("name", "node"), [("init.pt", "node-a"), ("ckpt/", "node-a"), ("init.pt.part", ""), ("ck", "")]
)
def test_a_file_that_another_node_wrote_is_named_with_it(name: str, node: str) -> None:
    wanted = "ckpt/a.pt" if name.startswith("ck") else "init.pt"
    text = local_advice(f"{MISSING}'{wanted}'", read("train.py"), None, [("log", "node-b"), (name, "node-a")])
    assert bool(text) == bool(node)
    assert re.search(f"^{wanted} was written on {node} during the job, .*LOCAL_RANK 0" if node else "", text)
