# SPDX-License-Identifier: Apache-2.0
"""Where a process is, in one line, from its stacks."""

from __future__ import annotations

import pytest

from paddle_cluster.job.causes import place

WAITS = """\
Thread 0x00007f0b (most recent call first):
  File "/root/JOB1/other.py", line 3 in poll
Current thread 0x00007f0c (most recent call first):
  File "/usr/lib64/python3.11/threading.py", line 327 in wait
  File "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 88 in all_reduce
  File "/root/JOB1/sub/train.py", line 12 in main
  File "/root/JOB1/sub/train.py", line 19 in <module>
"""
WORKS = 'Current thread 0x00007f0c (most recent call first):\n  File "/data/train.py", line 7 in load\n'
LIBRARY = (
    'Current thread 0x00007f0c (most recent call first):\n  File "/r/paddle/v2/main.py", line 7 in load\n'
)


@pytest.mark.parametrize(
    ("stacks", "where"),
    [
        (WAITS, "sub/train.py:12 in main, which waits for its peers in all_reduce()"),
        (WORKS, "/data/train.py:7 in load"),
        (LIBRARY, "/r/paddle/v2/main.py:7 in load"),
        ("pid 7 sleep 9: state S (waiting)\npid 8", "pid 7 sleep 9: state S (waiting)"),
        ("", ""),
    ],
)
def test_the_innermost_line_of_the_users_code_is_named(stacks: str, where: str) -> None:
    assert place(stacks, "JOB1") == where
