# SPDX-License-Identifier: Apache-2.0
"""What flags and environment say of nodes and ports before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle.distributed import launch_ps, nodes
from paddle.distributed.keeper import last_lines
from paddle.errors import ConfigError


@pytest.mark.parametrize("name", ["PADDLE_TRAINER_ID", "PADDLE_NUM_TRAINERS"])
def test_a_number_that_is_no_number_of_nodes_is_told(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        nodes.resolve(None, None, {name: "9" * 5000})


def test_brackets_of_ipv6_are_not_part_of_an_address() -> None:
    assert nodes.resolve("[fd00::1], fd00::2", "[fd00::2]", {}) == nodes.Nodes(("fd00::1", "fd00::2"), 1)


@pytest.mark.parametrize("name", ["--cluster_node_ips", "PADDLE_TRAINERS", "POD_IP"])
def test_a_node_with_a_port_in_its_address_is_told(name: str) -> None:
    given = "10.0.0.1:6170" if name == "POD_IP" else "10.0.0.1:6170,10.0.0.2"
    flag = given if name == "--cluster_node_ips" else None
    with pytest.raises(
        ConfigError, match=rf"{name}.*write 10\.0\.0\.1 here, and say the port 6170 as --start"
    ):
        nodes.resolve(flag, None, {} if flag else {name: given})


@pytest.mark.parametrize("given", ["127.0.0.1:65536", "127.0.0.1:0", "10.0.0.1:6170,10.0.0.1:6170"])
def test_endpoints_that_cannot_be_are_refused(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.touch()
    assert launch_ps.main([f"--endpoints={given}", str(script)]) == 2
    assert "--endpoints" in capsys.readouterr().err


def test_the_end_of_a_log_without_end_is_bounded() -> None:
    assert all(len(line) <= 16384 for line in last_lines(Path("/dev/full")))
