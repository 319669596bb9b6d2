# SPDX-License-Identifier: Apache-2.0
"""The click example, on rows that it makes up: a table of 10^11 rows in processes of well under a gigabyte."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 100
LARGEST = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(f"largest process: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss} kB")
sys.exit(code)
"""


def test_clicks_are_learned_with_a_table_that_no_process_could_hold(tmp_path: Path) -> None:
    example = Path(shutil.copytree(ROOT / "examples" / "ctr", tmp_path / "ctr"))
    launch = ("-m", "paddle.distributed.launch_ps", "--server_num=2", "--worker_num=2")
    command = [sys.executable, *launch, str(example / "train.py"), "--made_up=2000", "--passes=2"]
    done = subprocess.run(
        [sys.executable, "-c", LARGEST, *command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "runtime")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    logs = "".join(path.read_text() for path in sorted(tmp_path.glob("*log*/*")))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    (area,) = re.findall(r"AUC ([\d.]+)", done.stdout + done.stderr + logs)
    assert float(area) > 0.6
    sizes = [path.stat().st_size for path in (tmp_path / "output/parameters/__lookup_table__").iterdir()]
    # A row takes 8 bytes for its id and 32 for its values.
    assert len(sizes) == 2
    assert sum(sizes) / 40 > 3000
    (largest,) = re.findall(r"^largest process: (\d+) kB$", done.stdout, re.MULTILINE)
    assert int(largest) < 1_000_000
