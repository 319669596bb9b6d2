# SPDX-License-Identifier: Apache-2.0
"""What is told of files before they are sent."""

from __future__ import annotations

from pathlib import Path

from paddle_cluster.files.package import workspace_package
from paddle_cluster.files.payload import Sized, of_workspace, warning


def test_a_dry_run_lists_files_sizes_and_what_stays_here(tmp_path: Path) -> None:
    for name, size in {
        "train.py": 10,
        "data/big": 3 << 20,
        ".env": 5,
        "raw/x": 1,
        "a.tmp": 1,
        "log/old": 1,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
    (tmp_path / "data" / "__pycache__").mkdir()
    (tmp_path / ".paddleignore").write_text("raw/\n*.tmp\n")
    told = of_workspace(tmp_path, {".env"}, ["data"])
    assert told == [
        "to send: 3 files, 3.0 MB (only where missing); data: one shard per node",
        "  11 bytes  .paddleignore",
        "    3.0 MB  data/big",
        "  10 bytes  train.py",
        *told[4:],
    ]
    assert sorted(told[4:]) == [
        "  not sent because of --env_file and .env, which may contain secrets: .env",
        "  not sent because of .paddleignore: a.tmp, raw/",
        "  not sent because of the built-in rules: data/__pycache__/, log/",
    ]


def test_many_files_are_summed_up_by_folder(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(30):
        (tmp_path / "many" / f"f{number:02}").write_bytes(b"x" * number)
    (tmp_path / "train.py").write_bytes(b"x" * 100)
    assert of_workspace(tmp_path, (), ()) == [
        "to send: 31 files, 535 bytes (only where missing)",
        "  435 bytes  many/  (30 files)",
        "  100 bytes  at the top  (1 file)",
        "  the largest:",
        "    100 bytes  train.py",
        *(f"     {number} bytes  many/f{number}" for number in (29, 28, 27, 26)),
    ]


def test_what_is_large_is_told_with_the_largest_files_first(tmp_path: Path) -> None:
    files = [Sized(f"data/{number}", number << 20) for number in range(1, 20)]
    first, *rows = warning(files, "node-a", 100, workspace_package(tmp_path).left_out)
    assert first == "node-a is missing 19 files, 190.0 MB, more than WARN_SIZE_MB = 100; the largest:"
    assert rows[0] == "  19.0 MB  data/19"
    assert len(rows) == 6


def test_directories_that_jobs_seldom_need_are_named_with_a_line_for_paddleignore() -> None:
    files = [Sized(".venv/lib/a.so", 90 << 20), Sized("a/.venv/b", 10 << 20), Sized("wandb/small", 5)]
    *_, advice = warning(files, "node-a", 1, ())
    assert "unless the job reads .venv/ (100.0 MB), " in advice
    assert advice.endswith("printf '.venv/\\n' >> .paddleignore")
    assert "unless" not in "".join(warning([Sized("venv.py", 90 << 20)], "node-a", 1, ()))
