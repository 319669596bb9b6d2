# SPDX-License-Identifier: Apache-2.0
"""Errors of real Python 2 scripts, and the remedy that a failed job prints for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paddle_cluster.job.causes import judge
from paddle_cluster.job.failure_report import report
from paddle_cluster.nodes.failure import Failure, FailureKind


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ('print "pass 0"', "print(x)"),
        ("import pickle\npickle.dump({}, open(FILE, 'w'))", 'open(path, "wb")'),
        ("import pickle\npickle.load(open(FILE))", 'open(path, "rb")'),
        ("import pickle\npickle.load(open(FILE, encoding='latin-1'))", 'open(path, "rb")'),
        ("for n in range(6 / 2): pass", "`//` for"),
        ("for n in xrange(3): pass", "Python 3 has range"),
        ("import cPickle", "Python 3 has pickle"),
        ("import subprocess\nsubprocess.run(['no-program'])", "if no-program is a program"),
        ("open('no.txt')", "no.txt is not in the job's directory"),
        ('raise RuntimeError("Distributed package doesn\'t have NCCL built in")', "init_process_group"),
        ("raise ValueError('ProcessGroupNCCL is only supported with GPUs, no GPUs found!')", "gloo"),
        ("raise AssertionError('Torch not compiled with CUDA enabled')", "torch.device('cpu')"),
        ("raise RuntimeError('No CUDA GPUs are available')", "torch.device('cpu')"),
        ("raise TypeError('only 0-dimensional arrays can be converted to Python scalars')", "numpy<2.5"),
        ("reduce(max, [1])", "2to3"),
        ("print 'pass', 0755", "2to3"),
        ("if 1:\n        x = 1\n\ty = 2", "expand -t 8 train.py"),
        ("try:\n    pass\nexcept (OSError, ValueError), error:\n    pass", "2to3"),
        ("def swap((a, b)):\n    pass", "2to3"),
        ("import sys\nprint >>sys.stderr, 'done'", "2to3"),
        ("{}.has_key(1)", "2to3"),
        ("for pair in {}.iteritems(): pass", "2to3"),
        ("map(str, [1])[0]", "list(map(f, x))"),
        ("len(filter(None, [1]))", "list(map(f, x))"),
        ("{1: 2}.keys()[0]", "list(map(f, x))"),
    ],
)
def test_what_a_script_for_python_2_dies_of_is_told_with_what_python_3_wants(
    script: str, wanted: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"\x80\x02}q\x00.")
    (tmp_path / "train.py").write_text(script.replace("FILE", repr(str(tmp_path / "file"))) + "\n")
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    failure = Failure(
        FailureKind.EXIT, "node-a", "trainer-0", "exit code 1", tuple(done.stderr.splitlines()), "train.log", code=1
    )  # fmt: skip
    lines = report(judge([failure]))
    (found,) = (line for line in lines if line.startswith("  try: "))
    assert wanted in found
