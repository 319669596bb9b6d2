# SPDX-License-Identifier: Apache-2.0
"""The plan as text for people."""

from __future__ import annotations

import re

from launcher.plan.plan_text import describe
from tests.launcher.planning import LOCAL, Planned


def test_the_description_names_every_process_with_quoted_argv(planned: Planned) -> None:
    text = describe(planned(LOCAL, "--name=a b", "--x=$(id)", "--shard_dirs=data"))
    assert re.findall(r"^  (\S+) on node (\d)", text, re.M) == [
        ("pserver-0", "0"),
        ("pserver-1", "1"),
        ("pserver-2", "2"),
        ("trainer-0", "0"),
        ("trainer-1", "1"),
        ("trainer-2", "2"),
    ]
    assert "-u train.py '--name=a b' '--x=$(id)'" in text
    assert "env    PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.2:7164,127.0.0.3:7164,127.0.0.4:7164" in text
    assert re.search(r"pserver .* --bind=<bind> .*\n", text)
    assert re.search(r"^  process +<bind> .*\n  pserver-0 on node 0 \(local-0\) +127\.0\.0\.2 ", text, re.M)
    assert "by shard: data" in text
    assert "no connection was made" in text


def test_what_all_processes_have_is_described_once(planned: Planned) -> None:
    text = describe(planned(LOCAL, "--mode=collective", "--nproc_per_node=2", "--seed=7"))
    assert text.count("--seed=7") == 1
    assert text.count("WORLD_SIZE=6") == 2  # under Open MPI's name too
    assert "  RANK is also OMPI_COMM_WORLD_RANK, PADDLE_INIT_TRAINER_ID, PADDLE_TRAINER_ID\n" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("  trainer-")]
    assert [(row[0], row[3], row[5], row[6]) for row in rows] == [
        (f"trainer-{rank}", str(rank // 2), str(rank), str(rank % 2)) for rank in range(6)
    ]
    assert [row[-1] for row in rows] == ["log/train.0.log", "log/train.1.log"] * 3


def test_three_hundred_processes_take_a_line_each(planned: Planned) -> None:
    text = describe(
        planned("HOSTS = [f'n{i}' for i in range(100)]", "--mode=collective", "--nproc_per_node=3")
    )
    lines = text.splitlines()
    assert sum(line.startswith("  trainer-") for line in lines) == 300
    assert len(lines) < 300 + 100 + 60
    assert max(map(len, lines)) < 200
    assert "... 295 more ..." in text
